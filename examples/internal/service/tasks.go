// Package service is the download service that examples/web and
// examples/worker run: its tasks, their handlers, the files they write and
// the queue between the two processes.
package service

// Download fetches a URL into a file.
type Download struct {
	URL string `json:"url"`
}

// Import fetches a dataset, replacing the one that is there.
type Import struct {
	Dataset string `json:"dataset"`
}

// Kind names the task in both queues.
func (Download) Kind() string { return "download" }

// Kind names the task in both queues.
func (Import) Kind() string { return "import" }

// ImportKey is the lease that an import runs under, in the worker and in the
// web process, which refuses a second import while one runs.
func ImportKey(dataset string) string { return "import:" + dataset }
