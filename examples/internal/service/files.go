package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Files is the folder that the workers of one machine share. Each URL has a
// file and a record beside it, which keeps the fence of the file's writer: a
// writer with a smaller fence, one that stalled until another took its lease
// over, is refused.
type Files struct{ dir string }

// Record says who wrote a file.
type Record struct {
	URL    string    `json:"url"`
	File   string    `json:"file"` // relative to the folder
	Fence  int64     `json:"fence"`
	Bytes  int64     `json:"bytes"`
	SHA256 string    `json:"sha256"`
	At     time.Time `json:"at"`
}

// ErrStale is returned to a writer whose fence is smaller than that of the
// file that is there.
var ErrStale = errors.New("a newer attempt has written this file")

const (
	recordDir  = ".records"
	partSuffix = ".part"
)

// OpenFiles makes the folder if it is missing.
func OpenFiles(dir string) (*Files, error) {
	if err := os.MkdirAll(filepath.Join(dir, recordDir), 0o755); err != nil {
		return nil, fmt.Errorf("download folder: %w", err)
	}
	return &Files{dir}, nil
}

// name is where u's file goes: readable, below a folder for its host, and
// never outside of it whatever u says.
func name(u *url.URL) string {
	base := path.Base(u.Path)
	if base == "/" || base == "." || base == ".." {
		base = "index"
	}
	return filepath.Join(safe(u.Host, 100), safe(base, 100)+"-"+digest(u.String())[:12])
}

func safe(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		return '_'
	}, s)
	s = s[:min(len(s), most)]
	if strings.HasPrefix(s, ".") || s == "" { // hidden, or no name at all
		s = "_" + s
	}
	return s
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func (f *Files) recordPath(u string) string {
	return filepath.Join(f.dir, recordDir, digest(u)+".json")
}

// Record returns the record of a URL; ok is false when there is no file of it.
func (f *Files) Record(u string) (r Record, ok bool, err error) {
	data, err := os.ReadFile(f.recordPath(u))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err == nil, err
}

// Records returns all records.
func (f *Files) Records() ([]Record, error) {
	paths, err := filepath.Glob(filepath.Join(f.dir, recordDir, "*.json"))
	if err != nil {
		return nil, err
	}
	all := make([]Record, 0, len(paths))
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		var r Record
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// WriteIndex writes all records to index.json and returns how many there are.
func (f *Files) WriteIndex() (int, error) {
	records, err := f.Records()
	if err != nil {
		return 0, err
	}
	data, err := json.MarshalIndent(records, "", "\t")
	if err != nil {
		return 0, err
	}
	return len(records), replaceFile(filepath.Join(f.dir, "index.json"), data)
}

// replaceFile writes data so that a reader sees the old content or the new.
func replaceFile(path string, data []byte) error {
	if err := os.WriteFile(path+partSuffix, data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+partSuffix, path)
}

// Save streams body into a temporary file and puts it in place as u's file,
// unless a writer with a larger fence was there before: then it is ErrStale.
// Temporary files that attempts with smaller fences left behind are removed.
func (f *Files) Save(ctx context.Context, u *url.URL, fence int64, body io.Reader) (Record, error) {
	rec := Record{URL: u.String(), File: name(u), Fence: fence}
	final := filepath.Join(f.dir, rec.File)
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return rec, err
	}
	if err := removeParts(final, fence); err != nil {
		return rec, err
	}
	part := final + "." + strconv.FormatInt(fence, 10) + partSuffix
	out, err := os.Create(part)
	if err != nil {
		return rec, err
	}
	defer os.Remove(part) // gone already once it is in place
	sum := sha256.New()
	rec.Bytes, err = io.Copy(io.MultiWriter(out, sum), readerWith(ctx, body))
	if err == nil {
		err = out.Sync()
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return rec, err
	}
	rec.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return rec, f.commit(ctx, rec, part, final)
}

// commit puts the file and its record in place. The lock makes the comparison
// of the fences and the renames one step among the workers of the folder.
func (f *Files) commit(ctx context.Context, rec Record, part, final string) error {
	unlock, err := lockFile(filepath.Join(f.dir, recordDir, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	old, ok, err := f.Record(rec.URL)
	if err != nil {
		return err
	}
	if ok && old.Fence > rec.Fence {
		return fmt.Errorf("%w: fence %d is smaller than %d", ErrStale, rec.Fence, old.Fence)
	}
	rec.At = time.Now().UTC()
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := os.Rename(part, final); err != nil {
		return err
	}
	return replaceFile(f.recordPath(rec.URL), data)
}

// removeParts removes the temporary files of attempts before fence.
func removeParts(final string, fence int64) error {
	parts, err := filepath.Glob(final + ".*" + partSuffix) // final has no pattern characters: see safe
	if err != nil {
		return err
	}
	for _, p := range parts {
		left := strings.TrimSuffix(strings.TrimPrefix(p, final+"."), partSuffix)
		if n, err := strconv.ParseInt(left, 10, 64); err != nil || n >= fence {
			continue
		}
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

// readerWith ends with ctx's cause, so that a copy stops when the lease is lost.
func readerWith(ctx context.Context, r io.Reader) io.Reader { return ctxReader{ctx, r} }

func (r ctxReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}
