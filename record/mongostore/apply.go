package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// prepare answers what needs no database and makes side collections. It returns the
// groups that remain.
func (n *Namespace) prepare(ctx context.Context, b record.Batch) (*job, []record.Result, []int, error) {
	j, err := newJob(b)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, kind := range j.kinds {
		if j.targets[kind].fixed {
			if err := n.ensureSide(ctx, kind); err != nil {
				return nil, nil, nil, err
			}
		}
	}
	results := make([]record.Result, len(j.groups))
	remaining := make([]int, 0, len(j.groups))
	for i := range j.groups {
		if err := j.groups[i].refused; err != nil {
			results[i] = record.Result{Outcome: record.Refused, Err: err}
			continue
		}
		remaining = append(remaining, i)
	}
	return j, results, remaining, nil
}

// Apply writes the groups whose guards are all lower, many of them in one transaction.
func (n *Namespace) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	j, results, groups, err := n.prepare(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	err = j.checked(groups, results, func(groups []int) error {
		chunks := j.chunks(groups)
		if b.Together && j.fitsOne(groups) {
			chunks = [][]int{groups}
		}
		for _, chunk := range chunks {
			if err := n.resolve(ctx, j, chunk, results, attempt{repair: b.Repair}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	return results, nil
}

// checked writes groups. Documents are looked into only when the server finds one of
// them malformed, for which it refuses a whole command; they are then refused one by one.
func (j *job) checked(groups []int, results []record.Result, write func([]int) error) error {
	err := write(groups)
	if !hasCode(err, codeInvalidBSON) {
		return err
	}
	valid := make([]int, 0, len(groups))
	for _, g := range groups {
		if err := j.groups[g].validate(); err != nil {
			results[g] = record.Result{Outcome: record.Refused, Err: err}
			continue
		}
		valid = append(valid, g)
	}
	if len(valid) == len(groups) {
		return err
	}
	return write(valid)
}

func (p *plan) validate() error {
	for i := range p.Writes {
		w := &p.Writes[i]
		if w.Doc == nil {
			continue
		}
		if err := validate(w.Doc); err != nil {
			return fmt.Errorf("%s %s: %w: %w", w.Kind, w.Key, errMalformed, err)
		}
	}
	return nil
}

// chunks cuts groups into what transactions are given.
func (j *job) chunks(groups []int) [][]int {
	var out [][]int
	start, writes, bytes := 0, 0, 0
	for i, g := range groups {
		p := &j.groups[g]
		if i > start && (writes+len(p.Writes) > txnWrites || bytes+p.bytes > txnBytes) {
			out = append(out, groups[start:i])
			start, writes, bytes = i, 0, 0
		}
		writes += len(p.Writes)
		bytes += p.bytes
	}
	if start < len(groups) {
		out = append(out, groups[start:])
	}
	return out
}

// fitsOne reports whether groups are not more than a single one may be.
func (j *job) fitsOne(groups []int) bool {
	writes, bytes := 0, 0
	for _, g := range groups {
		writes, bytes = writes+len(j.groups[g].Writes), bytes+j.groups[g].bytes
	}
	return writes <= MaxGroupWrites && bytes <= MaxGroupBytes
}

// attempt is how a transaction makes its writes.
type attempt struct {
	repair bool // Batch.Repair
	// bypass writes fixed-name kinds past their validator, which is a fence's. That fence
	// is for the application: behind it the kind is the target of the rollback, and its
	// guards keep late appliers out.
	bypass bool
	// moderate are the collections of fixed-name kinds whose own validator is written past.
	moderate []string
	// clear deletes what is there before anything is inserted, so that unique values
	// that move between records of the transaction are free when they are taken.
	clear bool
}

// refusal is the failure of one group, which the database has rolled back together
// with the rest of its transaction.
type refusal struct {
	group    int
	conflict bool
	coll     string   // that refused it
	code     int      // the server's
	answer   bson.Raw // the server's, of a conflict
	err      error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// resolve brings groups to an outcome. A group that the database refuses is taken out
// and the others are tried again; after a few of those, halves are tried on their own,
// so that many refusals cost a logarithm each and not a transaction of everything. Halves
// are tried as well of what was too much for the server.
func (n *Namespace) resolve(ctx context.Context, j *job, groups []int, results []record.Result, how attempt) error {
	const beforeHalving = 3
	for refused := 0; len(groups) > 0; {
		outcomes, err := n.applyOnce(ctx, j, groups, how)
		if err == nil {
			for i, g := range groups {
				results[g] = record.Result{Outcome: outcomes[i]}
			}
			return nil
		}
		var r *refusal
		switch {
		case errors.Is(err, errValidatorFence) && !how.bypass:
			how.bypass = true
			continue
		case errors.Is(err, errTooMuch) && len(groups) > 1:
			return n.resolveHalves(ctx, j, groups, results, how)
		case errors.Is(err, errTooMuch):
			results[groups[0]] = record.Result{Outcome: record.Refused, Err: err}
			return nil
		case !errors.As(err, &r):
			return err
		}
		if r.code == codeValidation && !how.bypass && !slices.Contains(how.moderate, r.coll) {
			// Writing past it again where that does not help would have no end. A strict validator
			// of another kind in the transaction still refuses.
			if may, err := n.moderate(ctx, record.Token{Name: r.coll}); err == nil && may {
				how.moderate = append(slices.Clone(how.moderate), r.coll)
				continue
			}
		}
		if r.conflict && !how.clear {
			how.clear = true
			continue
		}
		results[r.group] = record.Result{Outcome: record.Refused, Err: n.located(ctx, r.coll, r.code, n.holder(ctx, j, r))}
		rest := make([]int, 0, len(groups)-1)
		for _, g := range groups {
			if g != r.group {
				rest = append(rest, g)
			}
		}
		groups = rest
		if refused++; refused == beforeHalving && len(groups) > 1 {
			return n.resolveHalves(ctx, j, groups, results, how)
		}
	}
	return nil
}

func (n *Namespace) resolveHalves(ctx context.Context, j *job, groups []int, results []record.Result, how attempt) error {
	half := len(groups) / 2
	if err := n.resolve(ctx, j, groups[:half], results, how); err != nil {
		return err
	}
	return n.resolve(ctx, j, groups[half:], results, how)
}

// applyOnce is one transaction: read the guards, decide, write.
func (n *Namespace) applyOnce(ctx context.Context, j *job, groups []int, how attempt) ([]record.Outcome, error) {
	outcomes := make([]record.Outcome, len(groups))
	squeezed, met := 0, map[int]int{}
	err := n.transact(ctx, "transaction", func(ctx context.Context) error {
		have, err := n.readState(ctx, j, groups)
		if err != nil {
			return err
		}
		winners := make([]int, 0, len(groups))
		for i, g := range groups {
			outcomes[i] = decide(&j.groups[g], have, how)
			if outcomes[i] == record.Applied {
				winners = append(winners, g)
			}
		}
		if len(winners) == 0 {
			return nil
		}
		err = n.writeGroups(ctx, j, winners, have, how)
		var exists *existsError
		if errors.As(err, &exists) {
			if met[exists.group]++; met[exists.group] == existsTries {
				return &refusal{group: exists.group, err: fmt.Errorf("%w: another record of the target has this _id to the server, and a name that differs from it: delete that one", exists.err)}
			}
		}
		if noRoom(err) {
			if squeezed++; squeezed == roomTries && j.bytesOf(groups) >= roomBytes {
				// Its own writes fill the cache: another try cures nothing.
				return fmt.Errorf("%w: %d bytes in %d groups: %v", errTooMuch, j.bytesOf(groups), len(groups), err)
			}
		}
		return err
	})
	return outcomes, err
}

// existsTries is how often in a row a transaction may meet a record that its own snapshot does
// not show. Another writer shows in the next snapshot; what never does is refused.
const existsTries = 8

// A server whose cache is full rolls transactions back. After roomTries of them in a row, one
// that writes at least roomBytes counts as too large for this server.
const (
	roomTries = 4
	roomBytes = 8 << 20
)

func (j *job) bytesOf(groups []int) (bytes int) {
	for _, g := range groups {
		bytes += j.groups[g].bytes
	}
	return bytes
}

// decide compares what is there with what a group brings.
func decide(p *plan, have state, how attempt) record.Outcome {
	for i := range p.Writes {
		w := &p.Writes[i]
		if !have[w.Kind][w.Key].guard.Older(p.guard, how.repair) {
			return record.Stale
		}
	}
	for i := range p.Writes {
		if w := &p.Writes[i]; w.Expect != nil && have[w.Kind][w.Key].guard != *w.Expect {
			return record.Changed
		}
	}
	return record.Applied
}

// state is what a transaction's snapshot holds of the keys it was asked for.
type state map[string]map[record.Key]held

type held struct {
	guard record.Guard
	id    bson.RawValue // as stored
	data  bool          // a document, be it a tombstone, is in the kind's collection
	side  bool          // an entry is in the side collection
}
