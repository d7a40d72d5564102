package taskguard

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

func TestKeeps(t *testing.T) {
	failed := errors.New("failed")
	retried := Task{Owner: "a", WillRetry: func(error) bool { return true }}
	g := Lease(time.Minute, []Option{HoldThroughRetries()})
	require.True(t, g.keeps(retried, failed))
	require.False(t, g.keeps(retried, nil), "it is done")
	require.False(t, g.keeps(retried, &RescheduleError{Busy: &leases.NotAcquiredError{}}), "it has not begun")
	require.False(t, g.keeps(retried, &failError{failed}), "it has not begun")
	require.False(t, g.keeps(Task{Owner: "a"}, failed), "nothing brings it back")
	require.False(t, g.keeps(Task{WillRetry: retried.WillRetry}, failed), "a retry would be another owner")
	require.False(t, Lease(time.Minute, nil).keeps(retried, failed))
}
