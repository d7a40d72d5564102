// Package leasetest is the conformance suite of leases.Backend: a test for
// each of the rules R1–R14 of package leases, on whatever backend it is given.
//
//	func TestBackend(t *testing.T) {
//		leasetest.Run(t, func(t *testing.T) leases.Backend {
//			return mystore.New(openStore(t))
//		})
//	}
//
// It needs no empty store and leaves its names in it. It works over a network
// and on a loaded machine: what must be live is asked of holds with a TTL of
// minutes, or asked again with a longer TTL when the answer came too late to
// tell; what must have expired is asked after the whole TTL.
package leasetest

import (
	"testing"

	"github.com/simple-module/core/leases"
)

var rules = []struct {
	name  string
	check func(t *testing.T, s store)
}{
	{"R1_exclusion", exclusion},
	{"R2_expiry", expiry},
	{"R3_identity", identity},
	{"R4_re-acquire", reacquire},
	{"R5_fence", fence},
	{"R6_confirmed_or_not_held", confirmed},
	{"R7_waiting", waiting},
	{"R8_the_local_guard", guard},
	{"R9_Do", do},
	{"R10_KeepAlive", keepAlive},
	{"R11_arguments", arguments},
	{"R12_kinds", kindsTold},
	{"R13_slots", slots},
	{"R14_handles", handles},
	{"Case04_a_second_release_frees_nobody_elses_slot", case04},
	{"Case10_a_refresh_after_expiry_says_that_it_expired", case10},
	{"Case15_the_slots_of_the_dead_are_free_after_their_TTL", case15},
}

// Run runs the suite, a subtest for each rule, one after the other; it returns
// when all have ended. newBackend is called once for each and gives a backend
// that is ready for use until its t ends. All of them may share one store:
// the suite uses random names.
//
// Run is not for parallel tests that use the process-wide backend:
// R14_handles replaces it for a moment.
func Run(t *testing.T, newBackend func(t *testing.T) leases.Backend) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) { r.check(t, store{newBackend(t)}) })
	}
}
