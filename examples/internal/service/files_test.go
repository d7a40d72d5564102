package service

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func openFiles(t *testing.T) (*Files, string) {
	t.Helper()
	dir := t.TempDir()
	f, err := OpenFiles(dir)
	require.NoError(t, err)
	return f, dir
}

func mustURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	require.NoError(t, err)
	return u
}

func TestSaveRefusesASmallerFence(t *testing.T) {
	f, dir := openFiles(t)
	u := mustURL(t, "http://host.example/a/file.txt")
	_, err := f.Save(t.Context(), u, 20, strings.NewReader("new"))
	require.NoError(t, err)
	_, err = f.Save(t.Context(), u, 10, strings.NewReader("stale"))
	require.ErrorIs(t, err, ErrStale)

	rec, ok, err := f.Record(u.String())
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 20, rec.Fence)
	data, err := os.ReadFile(filepath.Join(dir, rec.File))
	require.NoError(t, err)
	require.Equal(t, "new", string(data))
	requireNoParts(t, dir)

	_, err = f.Save(t.Context(), u, 30, strings.NewReader("newer"))
	require.NoError(t, err)
	data, err = os.ReadFile(filepath.Join(dir, rec.File))
	require.NoError(t, err)
	require.Equal(t, "newer", string(data))
}

func TestSaveLeavesNothingOfABrokenDownload(t *testing.T) {
	f, dir := openFiles(t)
	u := mustURL(t, "http://host.example/file")
	_, err := f.Save(t.Context(), u, 1, iotest.ErrReader(errors.New("connection reset")))
	require.ErrorContains(t, err, "connection reset")
	_, ok, err := f.Record(u.String())
	require.NoError(t, err)
	require.False(t, ok)
	requireNoParts(t, dir)
}

func TestSaveStopsWhenItsContextEnds(t *testing.T) {
	f, dir := openFiles(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("lease lost")
	cancel(cause)
	_, err := f.Save(ctx, mustURL(t, "http://host.example/file"), 1, strings.NewReader("late"))
	require.ErrorIs(t, err, cause)
	requireNoParts(t, dir)
}

func TestSaveRemovesWhatAKilledAttemptLeft(t *testing.T) {
	f, dir := openFiles(t)
	u := mustURL(t, "http://host.example/file")
	final := filepath.Join(dir, name(u))
	require.NoError(t, os.MkdirAll(filepath.Dir(final), 0o755))
	require.NoError(t, os.WriteFile(final+".7.part", []byte("half"), 0o644))
	require.NoError(t, os.WriteFile(final+".9.part", []byte("of a newer attempt"), 0o644))
	_, err := f.Save(t.Context(), u, 8, strings.NewReader("whole"))
	require.NoError(t, err)
	require.NoFileExists(t, final+".7.part")
	require.FileExists(t, final+".9.part")
	require.FileExists(t, final)
}

func TestNamesStayInTheFolder(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range []string{
		"http://host.example", "http://host.example/", "http://host.example/../../etc/passwd",
		"http://host.example/%2e%2e%2f%2e%2e%2fx", "http://../x", "http://./x", "http://[::1]:80/*?[", "http://host.example/.hidden",
		"http://host.example/a?b=c", "http://host.example/" + strings.Repeat("n", 1000), "http://host.example/ü/ß",
	} {
		u, err := url.Parse(s)
		if err != nil {
			continue
		}
		n := name(u)
		require.True(t, filepath.IsLocal(n), "%s: %s", s, n)
		require.Len(t, strings.Split(n, string(filepath.Separator)), 2, "%s: %s", s, n)
		require.NotContains(t, n, recordDir)
		require.False(t, seen[n], "%s is used twice", n)
		seen[n] = true
	}
}

func requireNoParts(t *testing.T, dir string) {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(dir, "*", "*"+partSuffix))
	require.NoError(t, err)
	require.Empty(t, parts)
}
