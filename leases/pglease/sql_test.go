package pglease

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

// TestCase06_ARefusedAttemptUsesNoTransactionID, and so writes no WAL.
func TestCase06_ARefusedAttemptUsesNoTransactionID(t *testing.T) {
	pool := newTable(t)
	ctx := t.Context()
	b := New(pool)
	for _, slots := range []int{0, 2} {
		name := map[int]string{0: "lease", 2: "semaphore"}[slots]
		for _, owner := range []string{"a", "b"}[:max(slots, 1)] {
			g, err := b.Acquire(ctx, leases.Claim{Name: name, Slots: slots, Owner: owner, TTL: leases.MaxTTL})
			require.NoError(t, err)
			require.True(t, g.Held)
		}
		var fence *int64
		var otherKind, again bool
		var remaining int64
		for _, asked := range []int{0, 2} {
			attempt := statement{b.sql.acquireLease, []any{name, "c", 1000}}
			if asked > 0 {
				attempt = statement{b.sql.acquireSlot, []any{name, "c", 1000, asked}}
			}
			require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				queued := []statement{{b.sql.queue, []any{name, "c", asked}}, attempt}
				if err := ask(ctx, tx, queued, &fence, &otherKind, &again, &remaining); err != nil {
					return err
				}
				require.Nil(t, fence)
				require.Equal(t, asked != slots, otherKind)
				require.False(t, again)
				return noTransactionID(ctx, t, tx)
			}))
		}
	}
}

func noTransactionID(ctx context.Context, t *testing.T, tx pgx.Tx) error {
	var unassigned bool
	err := tx.QueryRow(ctx, "SELECT pg_current_xact_id_if_assigned() IS NULL").Scan(&unassigned)
	require.True(t, unassigned, "a refused attempt wrote")
	return err
}
