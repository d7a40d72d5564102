package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// row is one line of the table.
type row struct {
	Benchmark string   `json:"benchmark"`
	What      string   `json:"what"`
	Unit      string   `json:"unit"`
	Ours      float64  `json:"ours"`
	Peers     []figure `json:"peers,omitempty"`

	// Figure is what the goal speaks of: a ratio of runs side by side, or Ours.
	Figure  float64 `json:"figure"`
	Goal    string  `json:"goal,omitempty"`
	Reached bool    `json:"reached"`
	Note    string  `json:"note,omitempty"`
}

type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// atLeast and atMost set the row's goal and whether the figure reaches it.
func (r row) atLeast(least float64, what string) row {
	r.Goal, r.Reached = fmt.Sprintf("at least %v %s", least, what), r.Figure >= least
	return r
}

func (r row) atMost(most float64, what string) row {
	r.Goal, r.Reached = fmt.Sprintf("at most %v %s", most, what), r.Figure <= most
	return r
}

func printTable(w io.Writer, rows []row) error {
	var b strings.Builder
	b.WriteString("| what | ours | peers | figure | goal | |\n|---|---|---|---|---|---|\n")
	for _, r := range rows {
		var peers []string
		for _, p := range r.Peers {
			peers = append(peers, p.Name+" "+number(p.Value))
		}
		verdict := ""
		if r.Goal != "" {
			if verdict = "missed"; r.Reached {
				verdict = "reached"
			}
		}
		what := r.What
		if r.Note != "" {
			what += " (" + r.Note + ")"
		}
		fmt.Fprintf(&b, "| %s | %s %s | %s | %s | %s | %s |\n", what, number(r.Ours), r.Unit, strings.Join(peers, ", "), number(r.Figure), r.Goal, verdict)
	}
	line, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "\nBENCH {\"rows\":%s}\n", line)
	_, err = io.WriteString(w, b.String())
	return err
}

// number prints three digits or more.
func number(v float64) string {
	switch {
	case v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.01:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}
