package recordio

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// prepare builds the job of a batch and creates the side collections that it needs. It answers the
// groups that are refused without the database, and returns the indexes of the others.
func (n *Records) prepare(ctx context.Context, b record.Batch) (*job, []record.Result, []int, error) {
	j, err := newJob(b)
	if err != nil {
		return nil, nil, nil, err
	}
	// Without an answer, separate commands are right for every server.
	router, err := n.IsMongos(ctx)
	j.joins = err == nil && !router
	// Creating a collection inside the transaction would conflict with other appliers.
	for _, kind := range j.kinds {
		if j.targets[kind].fixed {
			if err := n.EnsureSide(ctx, kind); err != nil {
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

// Apply writes each group whose guards are all lower, many groups in one transaction. Results have
// the order of the batch's groups. After an error, nothing is known about any group; applying the
// batch again is safe.
func (n *Records) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	j, results, groups, err := n.prepare(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	err = j.checked(groups, results, func(groups []int) error {
		chunks := j.chunks(groups)
		// Groups that exchange unique values succeed only in one transaction.
		if b.Together && j.fitsOne(groups) {
			chunks = [][]int{groups}
		}
		for _, chunk := range chunks {
			if err := n.resolve(ctx, j, chunk, results, attempt{repair: b.Repair, trust: true}); err != nil {
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

// checked writes groups. The server refuses a whole command for one malformed document. Only then
// does checked validate each document, refuse the malformed groups, and write the others.
func (j *job) checked(groups []int, results []record.Result, write func([]int) error) error {
	err := write(groups)
	if !conn.HasCode(err, conn.CodeInvalidBSON) {
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
	// No document is malformed by our rules, so a second attempt would fail the same way.
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
		if err := rawdoc.Validate(w.Doc); err != nil {
			return fmt.Errorf("%s %s: %w: %w", w.Kind, w.Key, wire.ErrMalformed, err)
		}
	}
	return nil
}

// chunks cuts groups into runs that each fit in one transaction.
func (j *job) chunks(groups []int) [][]int {
	var out [][]int
	start, writes, bytes := 0, 0, 0
	for i, g := range groups {
		p := &j.groups[g]
		// A group larger than the limits gets a transaction of its own.
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

// fitsOne reports whether the groups together are within the limits of a single group.
func (j *job) fitsOne(groups []int) bool {
	writes, bytes := 0, 0
	for _, g := range groups {
		writes, bytes = writes+len(j.groups[g].Writes), bytes+j.groups[g].bytes
	}
	return writes <= MaxGroupWrites && bytes <= MaxGroupBytes
}

// attempt holds the options of one transaction.
type attempt struct {
	repair bool // Batch.Repair
	// bypass skips the validator of fixed-name kinds because the validator is a fence. The fence
	// stops the application only. Behind it, the kind is the target of the rollback, and guards
	// keep late appliers out.
	bypass bool
	// moderate lists the collections of fixed-name kinds whose own validator the writes bypass.
	moderate []string
	// clear deletes existing documents before the inserts. Unique values that move between records
	// of the transaction are then free when the inserts need them.
	clear bool
	// trust uses record.Write.Seen in place of a read (seenState).
	trust bool
}

// refusal is the failure of one group. The database rolled back the whole transaction.
type refusal struct {
	group    int
	conflict bool
	coll     string   // collection that refused the group
	code     int      // server's error code
	answer   bson.Raw // server's answer, for a conflict
	err      error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// resolve finds the outcome of each group. It removes a refused group and retries the others. After
// a few refusals it tries each half on its own, so that a refusal costs a logarithmic number of
// transactions. It also halves when the transaction is too large for the server.
func (n *Records) resolve(ctx context.Context, j *job, groups []int, results []record.Result, how attempt) error {
	const beforeHalving = 3
	for refused := 0; len(groups) > 0; {
		outcomes, err := n.applyOnce(ctx, j, groups, &how)
		if err == nil {
			for i, g := range groups {
				results[g] = record.Result{Outcome: outcomes[i]}
			}
			return nil
		}
		var r *refusal
		switch {
		// The fence stops the application, not an Apply: retry past the validator.
		case errors.Is(err, errValidatorFence) && !how.bypass:
			how.bypass = true
			continue
		case errors.Is(err, conn.ErrTooMuch) && len(groups) > 1:
			return n.resolveHalves(ctx, j, groups, results, how)
		// One group alone is too large, and no retry can change that.
		case errors.Is(err, conn.ErrTooMuch):
			results[groups[0]] = record.Result{Outcome: record.Refused, Err: err}
			return nil
		case !errors.As(err, &r):
			return err
		}
		if r.code == conn.CodeValidation && !how.bypass && !slices.Contains(how.moderate, r.coll) {
			// Bypass a collection once only, or the loop would never end when the bypass does not
			// help. A strict validator of another kind can still refuse the transaction.
			if may, err := n.fences.Moderate(ctx, record.Token{Name: r.coll}); err == nil && may {
				how.moderate = append(slices.Clone(how.moderate), r.coll)
				continue
			}
		}
		// The value may only be moving between two records of this transaction; deleting first
		// frees it.
		if r.conflict && !how.clear {
			how.clear = true
			continue
		}
		// Look for the holder outside the failed transaction, which can read nothing any more.
		results[r.group] = record.Result{Outcome: record.Refused, Err: n.Located(ctx, r.coll, r.code, n.holder(ctx, j, r))}
		rest := make([]int, 0, len(groups)-1)
		for _, g := range groups {
			if g != r.group {
				rest = append(rest, g)
			}
		}
		groups = rest
		// Many refusals are likely to be spread over the batch. Halving isolates them faster.
		if refused++; refused == beforeHalving && len(groups) > 1 {
			return n.resolveHalves(ctx, j, groups, results, how)
		}
	}
	return nil
}

func (n *Records) resolveHalves(ctx context.Context, j *job, groups []int, results []record.Result, how attempt) error {
	half := len(groups) / 2
	if err := n.resolve(ctx, j, groups[:half], results, how); err != nil {
		return err
	}
	return n.resolve(ctx, j, groups[half:], results, how)
}

// applyOnce runs one transaction: it reads the guards, decides each outcome, and writes the groups
// that win. It ends how.trust if the writes show that something has changed since the caller's read.
func (n *Records) applyOnce(ctx context.Context, j *job, groups []int, how *attempt) ([]record.Outcome, error) {
	outcomes := make([]record.Outcome, len(groups))
	squeezed, met := 0, map[int]int{}
	err := n.Transact(ctx, "transaction", func(ctx context.Context) error {
		// Read the guards inside the transaction, so that a write in between conflicts with it.
		have, rest := n.seenState(j, groups, *how)
		if err := n.readState(ctx, j, rest, have); err != nil {
			return err
		}
		winners := make([]int, 0, len(groups))
		for i, g := range groups {
			outcomes[i] = decide(&j.groups[g], have, *how)
			if outcomes[i] == record.Applied {
				winners = append(winners, g)
			}
		}
		// All groups are stale or changed; an empty transaction needs no write.
		if len(winners) == 0 {
			return nil
		}
		err := n.writeGroups(ctx, j, winners, have, *how)
		var exists *existsError
		var r *refusal
		// A refused group may be stale. A refusal ends the command before its answer counts the writes
		// that found another state.
		if how.trust && len(rest) < len(groups) && (errors.Is(err, errUnseen) || errors.As(err, &exists) || errors.As(err, &r)) {
			how.trust = false // the next transaction reads
			return fmt.Errorf("%w: %w", conn.ErrAgain, err)
		}
		// A record that our snapshot never shows has an _id that only the server takes for equal.
		if errors.As(err, &exists) {
			if met[exists.group]++; met[exists.group] == existsTries {
				return &refusal{group: exists.group, err: fmt.Errorf("%w: the server treats the _id of another record of the target as equal, although its name differs: delete that record", exists.err)}
			}
		}
		if conn.NoRoom(err) {
			if squeezed++; squeezed == roomTries && j.bytesOf(groups) >= roomBytes {
				// Its own writes fill the cache: another try cures nothing.
				return fmt.Errorf("%w: %d bytes in %d groups: %v", conn.ErrTooMuch, j.bytesOf(groups), len(groups), err)
			}
		}
		return err
	})
	return outcomes, err
}

// existsTries is how often in a row a transaction may meet a record that its own snapshot does not
// show. A record of another writer shows in the next snapshot. A record that never shows is
// refused.
const existsTries = 8

// Limits for a server with a full cache, which rolls transactions back. After roomTries rollbacks
// in a row, a transaction that writes at least roomBytes counts as too large for this server.
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

// decide compares the stored guards of a group with the group's own guard.
func decide(p *plan, have state, how attempt) record.Outcome {
	// Stale goes first: a group with one newer member must not be written, whatever it expects.
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

// state holds the records that a transaction's snapshot has, by kind and key.
type state map[string]map[record.Key]held

type held struct {
	guard record.Guard
	id    bson.RawValue // as stored
	data  bool          // a document or a tombstone is in the kind's collection
	side  bool          // an entry is in the side collection
	// seen means that the caller read this, and not the transaction. Its write is conditional.
	seen bool
	gone bool // a tombstone was seen
}
