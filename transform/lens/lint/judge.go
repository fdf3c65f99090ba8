package lint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/record"
)

// Judge reports whether the new version's database would accept the results of a sample: whether
// they satisfy its indexes and validators. It remembers the records of one run, for unique indexes.
type Judge interface {
	// Try returns the reason why each record is refused, or nil if it is accepted.
	Try(ctx context.Context, rs []record.Record) ([]error, error)
}

// Refusal is one reason why the new version's database refuses records. The engine would park them.
type Refusal struct {
	Kind    string   `json:"kind"`
	Reason  string   `json:"reason"`
	Records int64    `json:"records"`
	Names   []string `json:"names"` // of all refused records
}

// trialRecords and trialBytes limit the records of one trial.
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

// try adds records to the trial, and runs it once it is large enough.
func (c *checker) try(ctx context.Context, rs []record.Record) error {
	if c.Judge == nil {
		return nil
	}
	for _, r := range rs {
		c.trying.records = append(c.trying.records, r)
		c.trying.bytes += len(r.Doc)
	}
	// Testing record by record would need a command for each.
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
	// An error here is one of the database, not of a record.
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
		// Results are in the order of the records.
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

// refused returns all refusals, the most frequent first.
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
