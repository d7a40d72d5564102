package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 3}, 2.5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

// TestInTurns: ratios are of runs side by side, not of medians.
func TestInTurns(t *testing.T) {
	ours, theirs := []float64{10, 20, 40}, []float64{10, 10, 10}
	next := func(from *[]float64) func(context.Context) (float64, error) {
		return func(context.Context) (float64, error) {
			v := (*from)[0]
			*from = (*from)[1:]
			return v, nil
		}
	}
	medians, ratios, err := inTurns(t.Context(), 3, sample{"ours", next(&ours)}, sample{"theirs", next(&theirs)})
	if err != nil || medians[0] != 20 || medians[1] != 10 || ratios[1] != 2 {
		t.Errorf("got %v %v %v", medians, ratios, err)
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	rows := []row{
		row{What: "a", Unit: "/s", Ours: 1234.5, Peers: []figure{{"x", 0.5}}, Figure: 1.5}.atLeast(1, "x"),
		row{What: "b", Ours: 3, Figure: 3}.atMost(2, "ms"),
	}
	if err := printTable(&b, rows); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| a | 1234 /s | x 0.50 | 1.50 | at least 1 x | reached |", "| b | 3  |  | 3 | at most 2 ms | missed |", "\nBENCH {\"rows\":[",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if !strings.HasSuffix(b.String(), "]}\n") || strings.Count(b.String(), "BENCH ") != 1 {
		t.Error("BENCH is the last line")
	}
}
