package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller/record"
)

// Load inserts groups that are probably absent. Groups of one record of a managed kind
// go without a transaction, guard and document being one; the others go into
// transactions of inserts only. Whatever is there already, a tombstone included, makes
// an insert fail and the group Changed.
func (n *Namespace) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	j, results, groups, err := n.prepare(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	err = j.checked(groups, results, func(groups []int) error { return n.loadGroups(ctx, j, groups, results) })
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return results, nil
}

func (n *Namespace) loadGroups(ctx context.Context, j *job, groups []int, results []record.Result) error {
	var single, several []int
	for _, g := range groups {
		p := &j.groups[g]
		switch {
		case p.expectsSomething():
			// It was there when the group was read.
			results[g] = record.Result{Outcome: record.Changed}
		case len(p.Writes) == 1 && !j.targets[p.Writes[0].Kind].fixed:
			single = append(single, g)
		default:
			several = append(several, g)
		}
	}
	if err := n.insertSingle(ctx, j, single, results); err != nil {
		return err
	}
	for _, chunk := range j.chunks(several) {
		if err := n.insertGroups(ctx, j, chunk, results); err != nil {
			return err
		}
	}
	return nil
}

// expectsSomething reports a record that is expected to be there, so that an insert
// cannot be what is wanted.
func (p *plan) expectsSomething() bool {
	for i := range p.Writes {
		if e := p.Writes[i].Expect; e != nil && !e.IsZero() {
			return true
		}
	}
	return false
}

// insertSingle inserts groups of one record each with plain unordered inserts.
func (n *Namespace) insertSingle(ctx context.Context, j *job, groups []int, results []record.Result) error {
	commands := make(map[string]*writeCommand, len(j.kinds))
	defer func() {
		for _, c := range commands {
			c.release()
		}
	}()
	for _, g := range groups {
		p := &j.groups[g]
		w := &p.Writes[0]
		c := commands[w.Kind]
		if c == nil {
			c = &writeCommand{verb: "insert", place: j.targets[w.Kind].place, single: true}
			commands[w.Kind] = c
		}
		c.addInsert(g, guardWrite{
			doc: w.Doc, layout: p.layouts[0], id: w.Key.Value(),
			guard: p.guard.Bytes(), tombstone: w.Doc == nil,
		})
		results[g] = record.Result{Outcome: record.Applied}
	}
	for _, kind := range j.kinds {
		c := commands[kind]
		if c == nil {
			continue
		}
		for _, part := range c.parts {
			if err := n.insertPart(ctx, c, part, results); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Namespace) insertPart(ctx context.Context, c *writeCommand, part *writePart, results []record.Result) error {
	what := "insert " + c.place.coll
	_, err := n.run(ctx, c.finish(part))
	if err == nil {
		return nil
	}
	var exception mongo.WriteException
	if !errors.As(err, &exception) || exception.WriteConcernError != nil {
		return classifyWrite(what, err)
	}
	for _, we := range exception.WriteErrors {
		if we.Index < 0 || we.Index >= len(part.owners) {
			return classifyWrite(what, err)
		}
		g := part.owners[we.Index]
		switch verdict, reason := judge(what, we); verdict {
		case present:
			results[g] = record.Result{Outcome: record.Changed}
		case refused:
			results[g] = record.Result{Outcome: record.Refused, Err: n.located(ctx, c.place.coll, we.Code, reason)}
		default:
			return reason
		}
	}
	return nil
}

// errPresent aborts a transaction of inserts that met a record.
var errPresent = errors.New("a record is present")

// insertGroups inserts groups in one transaction that reads nothing. If one of them is
// there already or refused, transactions that look first sort them out.
func (n *Namespace) insertGroups(ctx context.Context, j *job, groups []int, results []record.Result) error {
	err := n.transact(ctx, "transaction of inserts", func(ctx context.Context) error {
		err := n.writeGroups(ctx, j, groups, nil, attempt{})
		if errors.Is(err, errAgain) {
			return errPresent
		}
		return err
	})
	var r *refusal
	switch {
	case err == nil:
		for _, g := range groups {
			results[g] = record.Result{Outcome: record.Applied}
		}
		return nil
	case errors.Is(err, errPresent), errors.Is(err, errValidatorFence), errors.Is(err, errTooMuch), errors.As(err, &r):
		return n.resolve(ctx, j, groups, results, attempt{absentOnly: true})
	default:
		return err
	}
}
