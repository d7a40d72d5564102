package redislease_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/redislease"
)

func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer client.Close()
	leases.Configure(redislease.New(client, redislease.Prefix("shop:")))

	err := leases.Lease("import:42", time.Minute, leases.NonBlocking()).Do(context.Background(), func(ctx context.Context) error {
		h, _ := leases.FromContext(ctx)
		fmt.Println("held with fence", h.Fence())
		return nil
	})
	if err != nil {
		fmt.Println(err) // busy, or Redis does not answer
	}
}
