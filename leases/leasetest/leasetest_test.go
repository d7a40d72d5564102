package leasetest

import (
	"testing"

	"github.com/simple-module/core/leases"
)

func TestInProcess(t *testing.T) {
	Run(t, func(*testing.T) leases.Backend { return leases.NewInProcess() })
}
