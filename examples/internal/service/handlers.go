package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/simple-module/core/leases"
)

// Handlers do the tasks. They know neither the queue that brings a task nor
// the backend that guards it: the lease is in ctx.
type Handlers struct {
	Files  *Files
	Client *http.Client

	// ImportFrom is the address that has the datasets: a dataset is fetched
	// from ImportFrom/datasets/NAME. Without one an import writes down what
	// has been downloaded so far, and takes ImportTime for it.
	ImportFrom string
	ImportTime time.Duration

	Log *slog.Logger
}

// told logs why an attempt failed; the queue tries again, silently. An attempt
// whose ctx has ended was ended by somebody who knows.
func (h *Handlers) told(ctx context.Context, what, which string, err error) error {
	if err != nil && ctx.Err() == nil {
		h.Log.Warn("attempt failed", what, which, "error", err)
	}
	return err
}

// Download fetches a URL once: a second task of the same URL finds the file.
func (h *Handlers) Download(ctx context.Context, d Download) error {
	return h.told(ctx, "download", redacted(d.URL), h.download(ctx, d))
}

// redacted is a URL without its password.
func redacted(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "not a URL"
	}
	return u.Redacted()
}

func (h *Handlers) download(ctx context.Context, d Download) error {
	u, err := url.Parse(d.URL)
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	if _, done, err := h.Files.Record(u.String()); err != nil || done {
		return err
	}
	return h.fetch(ctx, u)
}

// Import replaces a dataset.
func (h *Handlers) Import(ctx context.Context, i Import) error {
	return h.told(ctx, "import", i.Dataset, h.importDataset(ctx, i))
}

func (h *Handlers) importDataset(ctx context.Context, i Import) error {
	if h.ImportFrom != "" {
		u, err := url.Parse(strings.TrimSuffix(h.ImportFrom, "/") + "/datasets/" + url.PathEscape(i.Dataset))
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		return h.fetch(ctx, u)
	}
	records, err := h.Files.Records()
	if err != nil {
		return fmt.Errorf("import %q: %w", i.Dataset, err)
	}
	var list strings.Builder
	for _, r := range records {
		fmt.Fprintf(&list, "%s %s %d\n", r.SHA256, r.URL, r.Bytes)
	}
	select {
	case <-time.After(h.ImportTime):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	u := &url.URL{Scheme: "dataset", Host: "datasets", Path: "/" + i.Dataset}
	return h.save(ctx, u, strings.NewReader(list.String()))
}

func (h *Handlers) fetch(ctx context.Context, u *url.URL) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	resp, err := h.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", u.Redacted(), resp.Status)
	}
	return h.save(ctx, u, resp.Body)
}

// save writes under the fence of the lease that guards the task.
func (h *Handlers) save(ctx context.Context, u *url.URL, body io.Reader) error {
	lease, ok := leases.FromContext(ctx)
	if !ok {
		return errors.New("the task runs without a lease")
	}
	_, err := h.Files.Save(ctx, u, lease.Fence(), body)
	return err
}
