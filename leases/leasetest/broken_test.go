package leasetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simple-module/core/leases"
)

// faults are what can be wrong with the model, and the rules whose tests must
// each find it.
var faults = map[string][]string{
	"expiry is ignored":                           {"R2_expiry", "Case15_"},
	"an expired hold can be refreshed":            {"R2_expiry"},
	"an expired hold can be released":             {"R2_expiry"},
	"an expired holder counts":                    {"R2_expiry", "Case15_"},
	"a refused attempt prolongs the hold":         {"R2_expiry"},
	"a refresh moves nothing":                     {"R2_expiry"},
	"a refresh never shortens":                    {"R2_expiry"},
	"grants are not atomic":                       {"R1_exclusion"},
	"one holder too many":                         {"R1_exclusion", "R13_slots", "Case04_"},
	"one holder too few":                          {"R1_exclusion", "R13_slots"},
	"busy is reported as held":                    {"R1_exclusion", "R7_waiting", "R13_slots"},
	"busy is an error":                            {"R1_exclusion", "R7_waiting"},
	"release by owner alone":                      {"R3_identity", "Case04_"},
	"refresh by owner alone":                      {"R3_identity"},
	"release by fence alone":                      {"R3_identity"},
	"release by anybody":                          {"R3_identity", "Case04_"},
	"release says true always":                    {"R3_identity", "Case04_"},
	"release does nothing":                        {"R1_exclusion", "R3_identity"},
	"release frees every slot":                    {"R3_identity"},
	"fence 0 matches nothing":                     {"R3_identity", "R6_confirmed_or_not_held"},
	"a refresh changes the fence":                 {"R3_identity"},
	"owners are folded to lower case":             {"R3_identity"},
	"re-acquire is refused":                       {"R4_re-acquire", "R6_confirmed_or_not_held"},
	"re-acquire takes a second slot":              {"R4_re-acquire"},
	"re-acquire keeps the fence":                  {"R3_identity", "R4_re-acquire", "R5_fence"},
	"re-acquire keeps the expiry":                 {"R4_re-acquire"},
	"the fence restarts after release":            {"R5_fence"},
	"the fence restarts after expiry":             {"R5_fence"},
	"the fence restarts with the kind":            {"R5_fence", "R12_kinds"},
	"the fence is a plain counter":                {"R5_fence"},
	"the fence is in nanoseconds":                 {"R5_fence"},
	"the fence runs ahead":                        {"R5_fence"},
	"the fence is each slot's own":                {"R5_fence"},
	"a refused attempt is granted later":          {"R6_confirmed_or_not_held"},
	"an ended ctx is ignored":                     {"R6_confirmed_or_not_held"},
	"an error comes with held":                    {"R6_confirmed_or_not_held"},
	"an error becomes busy":                       {"R6_confirmed_or_not_held"},
	"an error becomes held":                       {"R6_confirmed_or_not_held"},
	"an attempt waits for the holder":             {"R7_waiting"},
	"RetryAfter is missing":                       {"R7_waiting"},
	"RetryAfter is negative":                      {"R7_waiting"},
	"RetryAfter is too long":                      {"R7_waiting"},
	"RetryAfter is a guess":                       {"R7_waiting"},
	"RetryAfter is of the last to expire":         {"R7_waiting"},
	"a refresh is refused":                        {"R2_expiry", "R8_the_local_guard", "R10_KeepAlive"},
	"arguments are not checked":                   {"R11_arguments"},
	"a fence is not checked":                      {"R11_arguments"},
	"bad arguments are refused but applied":       {"R11_arguments"},
	"an error does not say which argument":        {"R11_arguments"},
	"the TTL is rounded down":                     {"R11_arguments"},
	"names are folded to lower case":              {"R11_arguments"},
	"names are trimmed":                           {"R11_arguments"},
	"names are cut at 255 bytes":                  {"R11_arguments"},
	"the fence is kept under a name of the users": {"R11_arguments"},
	"kinds are not told apart":                    {"R12_kinds"},
	"a kind is for ever":                          {"R12_kinds"},
	"the wrong kind is busy":                      {"R12_kinds"},
	"the wrong kind can release":                  {"R12_kinds"},
	"lowering slots ends holds":                   {"R13_slots"},
	"the first caller's slots count":              {"R13_slots"},
	"the largest slots count":                     {"R13_slots"},
}

const faultVariable = "LEASETEST_FAULT"

// TestModel is the suite on the model: without a fault here, and with one in
// the processes that TestFaultsAreFound starts.
func TestModel(t *testing.T) {
	fault := os.Getenv(faultVariable)
	if fault != "" {
		soon = 4 * time.Second // hangs are expected
	}
	Run(t, func(*testing.T) leases.Backend { return newModel(fault) })
}

// TestFaultsAreFound runs, for each fault, the tests that must find it in a
// process of its own: only there may they fail.
func TestFaultsAreFound(t *testing.T) {
	processes := make(chan struct{}, 6) // they mostly wait
	var all sync.WaitGroup
	defer all.Wait()
	for fault, expected := range faults {
		all.Go(func() {
			processes <- struct{}{}
			defer func() { <-processes }()
			c := exec.Command(os.Args[0], "-test.run=^TestModel$/^("+strings.Join(expected, "|")+")", "-test.timeout=60s")
			c.Env = append(os.Environ(), faultVariable+"="+fault)
			out, err := c.CombinedOutput()
			for _, rule := range expected {
				if err == nil || !regexp.MustCompile(`(?m)^\s*--- FAIL: TestModel/`+rule).Match(out) {
					t.Errorf("%q is not found by %s (%v):\n%s", fault, rule, err, out)
				}
			}
		})
	}
}

// model is a small backend of its own, correct but for its fault.
type model struct {
	fault string
	began time.Time

	mu    sync.Mutex
	names map[string]*modelName
}

type modelName struct {
	semaphore bool
	fence     int64
	slots     int // of the first claim, or the largest: only faults look at them
	holders   map[string]modelHold
	refused   []leases.Claim // only a fault looks at them
}

type modelHold struct {
	fence   int64
	expires time.Time
}

func newModel(fault string) *model {
	m := &model{fault: fault, began: time.Now(), names: make(map[string]*modelName)}
	if fault != "" && faults[fault] == nil {
		panic("no such fault: " + fault)
	}
	return m
}

func (m *model) has(fault string) bool {
	if faults[fault] == nil {
		panic("no such fault: " + fault)
	}
	return m.fault == fault
}

func (m *model) live(h modelHold, now time.Time) bool {
	return m.has("expiry is ignored") || h.expires.After(now)
}

// check is Claim.Check and Hold.Check with its faults.
func (m *model) check(err error) error {
	switch {
	case m.has("arguments are not checked"):
		return nil
	case m.has("an error does not say which argument") && err != nil:
		return fmt.Errorf("bad argument: %w", leases.ErrInvalid)
	}
	return err
}

func (m *model) name(name string) *modelName {
	switch {
	case m.has("names are folded to lower case"):
		name = strings.ToLower(name)
	case m.has("names are trimmed"):
		name = strings.TrimSpace(name)
	case m.has("names are cut at 255 bytes"):
		name = name[:min(len(name), 255)]
	case m.has("the fence is kept under a name of the users"):
		name = strings.TrimSuffix(name, ":fence")
	}
	n := m.names[name]
	if n == nil {
		n = &modelName{holders: make(map[string]modelHold)}
		m.names[name] = n
	}
	return n
}

func (m *model) owner(owner string) string {
	if m.has("owners are folded to lower case") {
		return strings.ToLower(owner)
	}
	return owner
}

func (m *model) Acquire(ctx context.Context, c leases.Claim) (leases.Grant, error) {
	checked, err := c.Check()
	if err = m.check(err); err != nil && !m.has("bad arguments are refused but applied") {
		return leases.Grant{}, err
	}
	if err == nil && !m.has("arguments are not checked") && !m.has("the TTL is rounded down") {
		c = checked
	} else {
		c.TTL = c.TTL.Truncate(time.Millisecond)
	}
	if ended := ctx.Err(); ended != nil {
		switch {
		case m.has("an error comes with held"):
			return leases.Grant{Held: true, Fence: 1}, ended
		case m.has("an error becomes busy"):
			return leases.Grant{}, nil
		case m.has("an error becomes held"):
			return leases.Grant{Held: true, Fence: time.Now().UnixMicro()}, nil
		case !m.has("an ended ctx is ignored"):
			return leases.Grant{}, ended
		}
	}
	for {
		g, kind := m.attempt(c)
		if !g.Held && kind == nil && m.has("an attempt waits for the holder") {
			select {
			case <-time.After(time.Millisecond):
				continue
			case <-ctx.Done():
				return leases.Grant{}, ctx.Err()
			}
		}
		if err == nil {
			err = kind
		}
		if !g.Held && err == nil && m.has("busy is an error") {
			err = fmt.Errorf("%q: %w", c.Name, leases.ErrNotAcquired)
		}
		if err != nil {
			g = leases.Grant{}
		}
		return g, err
	}
}

func (m *model) attempt(c leases.Claim) (leases.Grant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, n := time.Now(), m.name(c.Name)
	owner, slots := m.owner(c.Owner), max(c.Slots, 1)

	var live int
	var first, last time.Duration
	for o, h := range n.holders {
		if !m.live(h, now) && !m.has("an expired holder counts") {
			if m.has("the fence restarts after expiry") {
				n.fence = 0
			}
			delete(n.holders, o)
			continue
		}
		left := h.expires.Sub(now)
		if live == 0 || left < first {
			first = left
		}
		last = max(last, left)
		live++
	}

	if n.semaphore != (c.Slots > 0) {
		if n.fence > 0 && (live > 0 && !m.has("kinds are not told apart") || m.has("a kind is for ever")) {
			if m.has("the wrong kind is busy") {
				return leases.Grant{RetryAfter: first}, nil
			}
			return leases.Grant{}, c.KindError()
		}
		n.semaphore = c.Slots > 0
		if m.has("the fence restarts with the kind") {
			n.fence = 0
		}
	}

	own, held := n.holders[owner]
	if n.slots == 0 || m.has("the largest slots count") {
		n.slots = max(n.slots, slots)
	}
	switch {
	case m.has("one holder too many"):
		slots++
	case m.has("one holder too few") && slots > 1:
		slots--
	case m.has("the first caller's slots count") || m.has("the largest slots count"):
		slots = n.slots
	case m.has("lowering slots ends holds"):
		for o := range n.holders {
			if live > slots {
				delete(n.holders, o)
				live--
			}
		}
	}
	if held && (m.has("re-acquire is refused") || m.has("re-acquire takes a second slot")) {
		held = false
	}
	if !held && live >= slots {
		return m.refuse(n, c, first, last), nil
	}
	if m.has("grants are not atomic") {
		m.mu.Unlock()
		time.Sleep(rand.N(time.Millisecond))
		m.mu.Lock()
	}
	if m.has("re-acquire takes a second slot") {
		if old, ok := n.holders[owner]; ok {
			n.holders[fmt.Sprint(owner, " ", old.fence)] = old
		}
	}
	m.nextFence(n, own.fence, now)
	h := modelHold{n.fence, now.Add(c.TTL)}
	if held && m.has("re-acquire keeps the expiry") {
		h.expires = own.expires
	}
	n.holders[owner] = h
	return leases.Grant{Held: true, Fence: h.fence}, nil
}

func (m *model) nextFence(n *modelName, own int64, now time.Time) {
	switch {
	case m.has("the fence is a plain counter"):
		n.fence++
	case m.has("the fence is in nanoseconds"):
		n.fence = max(n.fence+1, now.UnixNano())
	case m.has("the fence runs ahead"):
		n.fence = max(n.fence+1_000_000, now.UnixMicro())
	case m.has("re-acquire keeps the fence") && own > 0:
		n.fence = own
	case m.has("the fence is each slot's own") && n.semaphore: // and the clock has milliseconds
		n.fence = now.Truncate(10 * time.Millisecond).UnixMicro()
	case strings.HasPrefix(m.fault, "the fence restarts"): // at what was the clock then
		n.fence = max(n.fence+1, m.began.UnixMicro())
	default:
		n.fence = max(n.fence+1, now.UnixMicro())
	}
}

func (m *model) refuse(n *modelName, c leases.Claim, first, last time.Duration) leases.Grant {
	n.refused = append(n.refused, c)
	if m.has("a refused attempt prolongs the hold") {
		for o, h := range n.holders {
			h.expires = h.expires.Add(20 * time.Millisecond)
			n.holders[o] = h
		}
	}
	g := leases.Grant{RetryAfter: first}
	switch {
	case m.has("busy is reported as held"):
		g = leases.Grant{Held: true, Fence: n.fence + 1}
	case m.has("RetryAfter is missing"):
		g.RetryAfter = 0
	case m.has("RetryAfter is negative"):
		g.RetryAfter = -first
	case m.has("RetryAfter is too long"):
		g.RetryAfter = first * 1000 // microseconds taken for nanoseconds
	case m.has("RetryAfter is a guess"):
		g.RetryAfter = time.Second
	case m.has("RetryAfter is of the last to expire"):
		g.RetryAfter = last
	}
	return g
}

func (m *model) Refresh(ctx context.Context, h leases.Hold, ttl time.Duration) (bool, error) {
	rounded, err := leases.CheckTTL(ttl)
	if err = m.check(err); err != nil {
		return false, err
	}
	if rounded > 0 {
		ttl = rounded
	}
	return m.change(ctx, h, "refresh by owner alone", "an expired hold can be refreshed", func(n *modelName, owner string, cur modelHold, now time.Time) bool {
		expires := now.Add(ttl)
		switch {
		case m.has("a refresh is refused"):
			return false
		case m.has("a refresh moves nothing"):
			return true
		case m.has("a refresh never shortens") && expires.Before(cur.expires):
			return true
		case m.has("a refresh changes the fence"):
			cur.fence++
			n.fence++
		}
		n.holders[owner] = modelHold{cur.fence, expires}
		return true
	})
}

func (m *model) Release(ctx context.Context, h leases.Hold) (bool, error) {
	ok, err := m.change(ctx, h, "release by owner alone", "an expired hold can be released", func(n *modelName, owner string, _ modelHold, now time.Time) bool {
		if m.has("release does nothing") {
			return true
		}
		delete(n.holders, owner)
		switch {
		case m.has("release frees every slot"):
			clear(n.holders)
		case m.has("the fence restarts after release"):
			n.fence = 0
		case m.has("a refused attempt is granted later") && len(n.refused) > 0:
			next := n.refused[0]
			n.fence++
			n.holders[next.Owner] = modelHold{n.fence, now.Add(next.TTL)}
		}
		return true
	})
	return ok || err == nil && m.has("release says true always"), err
}

// change applies do to the hold that h names. byOwner is the fault of not
// looking at the fence, late that of not looking at the expiry.
func (m *model) change(ctx context.Context, h leases.Hold, byOwner, late string, do func(*modelName, string, modelHold, time.Time) bool) (bool, error) {
	err := m.check(h.Check())
	if err != nil && !(m.has("a fence is not checked") && h.Fence < 0) {
		return false, err
	}
	if err := ctx.Err(); err != nil && !m.has("an ended ctx is ignored") {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, now := m.name(h.Name), time.Now()
	if n.semaphore != (h.Slots > 0) && !m.has("the wrong kind can release") {
		return false, nil
	}
	owner := m.owner(h.Owner)
	cur, ok := n.holders[owner]
	switch {
	case !ok && m.has("release by anybody") && byOwner == "release by owner alone":
		for owner, cur = range n.holders {
			return do(n, owner, cur, now), nil
		}
	case m.has("release by fence alone") && byOwner == "release by owner alone" && h.Fence != 0:
		for owner, cur = range n.holders {
			if cur.fence == h.Fence {
				return do(n, owner, cur, now), nil
			}
		}
	}
	if !ok || !m.live(cur, now) && !m.has(late) {
		return false, nil
	}
	if h.Fence != cur.fence && !m.has(byOwner) && (h.Fence != 0 || m.has("fence 0 matches nothing")) {
		return false, nil
	}
	return do(n, owner, cur, now), nil
}
