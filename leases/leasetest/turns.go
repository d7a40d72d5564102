package leasetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/simple-module/core/leases"
)

// turns are what R7 asks of a backend that is a leases.Sequencer.
func turns(t *testing.T, s store, slots int) {
	b, ok := s.Backend.(leases.Sequencer)
	if !ok {
		return
	}
	for name, check := range map[string]func(*testing.T, queue){
		"by_arrival":                turnsByArrival,
		"newcomers_do_not_go_first": newcomersDoNotGoFirst,
		"a_turn_is_told":            aTurnIsTold,
		"a_turn_ends":               aTurnEnds,
		"leaving":                   leavingTheLine,
		"leaving_in_turn":           leavingInTurn,
		"again":                     againIsBehind,
		"re-acquire":                reacquireInALine,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, queue{s, b, slots, granted{}}.behind(t))
		})
	}
}

// queue is a name that is held, and the line behind it.
type queue struct {
	store
	leases.Sequencer
	slots  int
	holder granted
}

// behind is the queue of a new name.
func (q queue) behind(t *testing.T) queue {
	t.Helper()
	q.holder = q.hold(t, "R7", leases.Claim{Name: newName(), Slots: q.slots, Owner: "holder", TTL: long})
	return q
}

func (q queue) claim(owner string) leases.Claim {
	return leases.Claim{Name: q.holder.Name, Slots: q.holder.Slots, Owner: owner, TTL: long}
}

// process is one that waits in line.
type process struct {
	queue
	ticket string
	called chan struct{}
	fence  int64 // once it has acquired
}

// join puts a process at the end of the line.
func (q queue) join(t *testing.T, who string) *process {
	t.Helper()
	p := &process{queue: q, ticket: who + newName(), called: make(chan struct{}, 100)}
	p.ticket = p.ticket[:min(len(p.ticket), 30)]
	stop, err := q.WatchTurn(bounded(t), q.holder.Name, p.ticket, func() { p.called <- struct{}{} })
	require.NoError(t, err)
	t.Cleanup(stop)
	p.refused(t)
	for len(p.called) > 0 { // by the confirmation
		<-p.called
	}
	return p
}

func (p *process) attempt(t *testing.T, again bool) bool {
	t.Helper()
	g, err := p.AcquireInTurn(bounded(t), p.claim(p.ticket), p.ticket, again)
	require.NoError(t, err)
	p.fence = g.Fence
	return g.Held
}

func (p *process) refused(t *testing.T) {
	t.Helper()
	require.False(t, p.attempt(t, false), "R7: it is not the turn of this process")
}

// granted asks until it is, for its turn may have ended on a slow machine.
func (p *process) granted(t *testing.T, again bool) {
	t.Helper()
	require.Eventually(t, func() bool { return p.attempt(t, again) }, soon, 5*time.Millisecond, "R7: the turn of this process comes")
}

func (p *process) releases(t *testing.T) {
	t.Helper()
	p.released(t, "R7", leases.Hold{Name: p.holder.Name, Slots: p.holder.Slots, Owner: p.ticket, Fence: p.fence})
}

// turnAtLeast is what every backend leaves a process to take its turn.
const turnAtLeast = 50 * time.Millisecond

// requireOrder has the processes acquire in whatever order the backend lets
// them. It reports false when one was too late for its turn.
func requireOrder(t *testing.T, want ...*process) bool {
	t.Helper()
	var served []*process
	ctx, began := bounded(t), time.Now()
	for len(served) < len(want) {
		require.NoError(t, ctx.Err(), "R7: everybody has a turn")
		for i := len(want) - 1; i >= 0; i-- { // who is the last asks first
			if p := want[i]; p.fence == 0 && p.attempt(t, false) {
				if time.Since(began) >= turnAtLeast {
					return false
				}
				served = append(served, p)
				began = time.Now()
				p.releases(t)
			}
		}
	}
	require.Equal(t, want, served, "R7: processes are served by arrival")
	return true
}

// inTurn repeats a check, behind new names, until nobody was too late to tell.
func inTurn(t *testing.T, q queue, check func(q queue) bool) {
	t.Helper()
	for range 50 {
		if check(q.behind(t)) {
			return
		}
	}
	require.Fail(t, "too slow to tell", "the store or this machine took longer than %v", turnAtLeast)
}

func turnsByArrival(t *testing.T, q queue) {
	inTurn(t, q, func(q queue) bool {
		a, b, c := q.join(t, "a"), q.join(t, "b"), q.join(t, "c")
		a.refused(t) // its place stays the first
		q.released(t, "R7", q.holder.Hold)
		return requireOrder(t, a, b, c)
	})
}

func newcomersDoNotGoFirst(t *testing.T, q queue) {
	inTurn(t, q, func(q queue) bool {
		a := q.join(t, "a")
		began := time.Now()
		q.released(t, "R7", q.holder.Hold)
		g := q.acquire(t, q.claim("newcomer"))
		if time.Since(began) >= turnAtLeast {
			return false
		}
		require.False(t, g.Held, "R7: a newcomer does not overtake a process in line")
		require.Zero(t, g.RetryAfter, "R7: nobody holds it, so when to try again is unknown")
		a.granted(t, false)
		a.releases(t)
		q.hold(t, "R7: nobody is in line", q.claim("newcomer"))
		return true
	})
}

func aTurnIsTold(t *testing.T, q queue) {
	a, b := q.join(t, "a"), q.join(t, "b")
	q.released(t, "R7", q.holder.Hold)
	a.told(t)
	a.granted(t, false)
	a.releases(t)
	b.told(t)
}

func (p *process) told(t *testing.T) {
	t.Helper()
	select {
	case <-p.called:
	case <-time.After(soon):
		require.Fail(t, "R7: a process is told that it is its turn")
	}
}

func aTurnEnds(t *testing.T, q queue) {
	q.join(t, "a") // and never asks again
	b := q.join(t, "b")
	q.released(t, "R7", q.holder.Hold)
	b.granted(t, false)
	b.releases(t)
	q.hold(t, "R7: who did not take its turn is in nobody's way", q.claim("newcomer"))
}

func leavingTheLine(t *testing.T, q queue) {
	a, b := q.join(t, "a"), q.join(t, "b")
	require.NoError(t, q.LeaveLine(bounded(t), q.holder.Name, a.ticket))
	require.NoError(t, q.LeaveLine(bounded(t), q.holder.Name, a.ticket), "R7: leaving twice does no harm")
	q.released(t, "R7", q.holder.Hold)
	require.True(t, b.attempt(t, false), "R7: who has left does not count")
}

func leavingInTurn(t *testing.T, q queue) {
	a, b := q.join(t, "a"), q.join(t, "b")
	q.released(t, "R7", q.holder.Hold)
	require.NoError(t, q.LeaveLine(bounded(t), q.holder.Name, a.ticket))
	b.told(t)
	require.True(t, b.attempt(t, false), "R7: who leaves gives its turn to the next")
}

func againIsBehind(t *testing.T, q queue) {
	inTurn(t, q, func(q queue) bool {
		a, b := q.join(t, "a"), q.join(t, "b")
		q.released(t, "R7", q.holder.Hold)
		a.granted(t, true)
		a.releases(t)
		a.fence = 0
		return requireOrder(t, b, a)
	})
}

func reacquireInALine(t *testing.T, q queue) {
	a := q.join(t, "a")
	again := q.hold(t, "R4: its owner acquires it again, whoever waits", q.claim("holder"))
	q.released(t, "R7", again.Hold)
	a.granted(t, false)
}
