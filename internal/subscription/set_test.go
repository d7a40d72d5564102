package subscription

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// confirming is a Run whose connection confirms at once what is asked of it.
func confirming(s *Set, subscribed Subscribed, ended chan<- struct{}) func(<-chan struct{}) {
	return func(changed <-chan struct{}) {
		defer close(ended)
		for {
			select {
			case <-changed:
				on, _ := s.Difference(subscribed)
				for _, name := range on {
					s.Wake(name, true)
				}
			case <-time.After(IdleTime):
				if s.Stop(false) {
					return
				}
			}
		}
	}
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, subscribed, ended := &Set{}, Subscribed{}, make(chan struct{})
		s.Run = confirming(s, subscribed, ended)
		woken := make(chan string, 100)
		watch := func(topic, who string) func() {
			stop, err := s.Watch(t.Context(), topic, func() { woken <- who })
			require.NoError(t, err)
			return stop
		}
		taken := func() (all []string) {
			synctest.Wait()
			for len(woken) > 0 {
				all = append(all, <-woken)
			}
			return all
		}
		stopA, stopB, stopC := watch("x", "a"), watch("x", "b"), watch("y", "c")
		taken() // by the confirmations
		s.Wake("x", false)
		s.Wake("nobody's", false)
		require.ElementsMatch(t, []string{"a", "b"}, taken())

		stopA()
		stopA()
		s.Wake("x", false)
		require.Equal(t, []string{"b"}, taken())
		stopB()
		synctest.Wait()
		require.Len(t, subscribed, 1)
		again := watch("x", "d") // the topic is confirmed anew
		require.Equal(t, []string{"d"}, taken())
		again()
		stopC()
		<-ended // once nobody has watched for a while
		synctest.Wait()
		require.Empty(t, subscribed)
	})
}

func TestWatchWithoutConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Set{Run: func(<-chan struct{}) {}}
		start := time.Now()
		_, err := s.Watch(t.Context(), "x", func() {})
		require.ErrorIs(t, err, ErrNotConfirmed)
		require.Equal(t, confirmTime, time.Since(start))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.Watch(ctx, "x", func() {})
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, s.topics)
	})
}
