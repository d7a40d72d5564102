package riverlease_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/sqlitelease"
	riverlease "github.com/simple-module/core/middleware/river"
	"github.com/simple-module/core/migrations"
)

type ImportArgs struct {
	Dataset int    `json:"dataset"`
	Source  string `json:"source"` // a URL
}

func (ImportArgs) Kind() string { return "import" }

type ImportWorker struct {
	river.WorkerDefaults[ImportArgs]
	guards []rivertype.WorkerMiddleware
}

func (w *ImportWorker) Middleware(*rivertype.JobRow) []rivertype.WorkerMiddleware { return w.guards }

func (w *ImportWorker) Work(ctx context.Context, job *river.Job[ImportArgs]) error {
	h, _ := leases.FromContext(ctx) // its Fence goes with what is written
	fmt.Println("holding", h.Name())
	return nil
}

// One import of a dataset at a time, and four from each source, over all
// processes. Here River and the leases are in one SQLite file.
func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "riverlease")
	check(err)
	defer os.RemoveAll(folder)
	db, err := sqlitelease.Open(filepath.Join(folder, "app.db"))
	check(err)
	defer db.Close()
	check(migrations.Up(ctx, db, "sqlite"))
	driver := riversqlite.New(db)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	check(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	check(err)

	b := riverlease.On(sqlitelease.New(db)) // or leases.Configure, once for the whole process
	workers := river.NewWorkers()
	river.AddWorker(workers, &ImportWorker{guards: []rivertype.WorkerMiddleware{
		riverlease.Semaphore(riverlease.HostKey("source", "source"), 4, time.Minute, riverlease.KeepAlive(), b),
		riverlease.Lease(riverlease.ArgsKey("import", "dataset"), time.Minute, riverlease.KeepAlive(), b),
	}})
	client, err := river.NewClient(driver, &river.Config{
		Workers: workers,
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 16}},
	})
	check(err)
	done, cancel := client.Subscribe(river.EventKindJobCompleted)
	defer cancel()
	check(client.Start(ctx))
	_, err = client.Insert(ctx, ImportArgs{Dataset: 42, Source: "https://data.example/42"}, nil)
	check(err)
	fmt.Println((<-done).Job.State)
	check(client.Stop(ctx))

	// Output:
	// holding import:42
	// completed
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
