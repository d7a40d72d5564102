package redislease_test

import (
	"testing"

	"github.com/simple-module/core/internal/teststore"
	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/leasetest"
	"github.com/simple-module/core/leases/redislease"
)

func TestConformance(t *testing.T) {
	c := teststore.Redis(t)
	leasetest.Run(t, func(*testing.T) leases.Backend { return redislease.New(c) })
}
