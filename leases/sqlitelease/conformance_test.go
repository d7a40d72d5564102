package sqlitelease_test

import (
	"testing"

	"github.com/simple-module/core/leases"
	"github.com/simple-module/core/leases/leasetest"
	"github.com/simple-module/core/leases/sqlitelease"
)

func TestConformance(t *testing.T) {
	leasetest.Run(t, func(t *testing.T) leases.Backend {
		db, _ := open(t)
		return sqlitelease.New(db)
	})
}
