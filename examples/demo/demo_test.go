package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/internal/teststore"
)

// TestDemo runs the demo as `make run` does, on each store.
func TestDemo(t *testing.T) {
	for _, test := range []struct {
		queue, backend string
		env            func(t *testing.T) string
	}{
		{"river", "sqlite", func(*testing.T) string { return "SM_DATABASE_URL=" }},
		{"asynq", "redis", func(t *testing.T) string { return "SM_REDIS_URL=" + teststore.RedisURL(t) }},
		{"river", "postgres", func(t *testing.T) string { return "SM_DATABASE_URL=" + teststore.PostgresURL(t) }},
	} {
		t.Run(test.queue+" on "+test.backend, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", "run", ".")
			cmd.Env = append(os.Environ(), "SM_REDIS_URL=", "SM_DATABASE_URL=", test.env(t))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			t.Logf("%s", out)

			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			last, ok := strings.CutPrefix(lines[len(lines)-1], "RESULT ")
			require.True(t, ok, "the last line is the result")
			var r Result
			require.NoError(t, json.Unmarshal([]byte(last), &r))
			require.Positive(t, r.Seconds)
			require.Positive(t, r.MaxPerHost)
			require.LessOrEqual(t, r.MaxPerHost, slots)
			r.Seconds, r.MaxPerHost = 0, 0
			require.Equal(t, Result{
				Queue: test.queue, Backend: test.backend,
				Requested: 140, Downloaded: 120, Slots: 4, MaxImportsPerDataset: 1,
			}, r)
		})
	}
}
