package lint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/record"
)

// Judge has the new version's database judge what is made of a sample: whether its indexes and
// validators take each record. It remembers the records of one run, for those that must differ.
type Judge interface {
	// Try returns why each record is refused, nil for those that are taken.
	Try(ctx context.Context, rs []record.Record) ([]error, error)
}

// Refusal is a reason for which the new version's database takes records not. The engine would
// park them.
type Refusal struct {
	Kind    string   `json:"kind"`
	Reason  string   `json:"reason"`
	Records int64    `json:"records"`
	Names   []string `json:"names"` // of all of them
}

// trialRecords and trialBytes bound what is tried at once.
const (
	trialRecords = 500
	trialBytes   = 4 << 20
)

// trying collects records for a trial.
type trying struct {
	records  []record.Record
	bytes    int
	refusals map[[2]string]*Refusal // by kind and reason
}

// try keeps records for the trial, and has it judge those that have come together.
func (c *checker) try(ctx context.Context, rs []record.Record) error {
	if c.Judge == nil {
		return nil
	}
	for _, r := range rs {
		c.trying.records = append(c.trying.records, r)
		c.trying.bytes += len(r.Doc)
	}
	if len(c.trying.records) < trialRecords && c.trying.bytes < trialBytes {
		return nil
	}
	return c.judge(ctx)
}

func (c *checker) judge(ctx context.Context) error {
	t := &c.trying
	if len(t.records) == 0 {
		return nil
	}
	found, err := c.Judge.Try(ctx, t.records)
	if err != nil {
		return fmt.Errorf("try the indexes of the new version: %w", err)
	}
	if t.refusals == nil {
		t.refusals = map[[2]string]*Refusal{}
	}
	for i, err := range found {
		if err == nil {
			continue
		}
		r := t.records[i]
		at := [2]string{r.Kind, oneLine(err.Error())}
		if t.refusals[at] == nil {
			t.refusals[at] = &Refusal{Kind: r.Kind, Reason: at[1]}
		}
		t.refusals[at].Records++
		t.refusals[at].Names = append(t.refusals[at].Names, r.Key.String())
	}
	t.records, t.bytes = t.records[:0], 0
	return nil
}

// refused are all refusals, the most frequent first.
func (c *checker) refused() []Refusal {
	var out []Refusal
	for _, r := range c.trying.refusals {
		slices.Sort(r.Names)
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Refusal) int {
		return cmp.Or(-cmp.Compare(a.Records, b.Records), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Reason, b.Reason))
	})
	return out
}
