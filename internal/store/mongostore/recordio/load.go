package recordio

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// Load inserts documents with plain unordered inserts that carry the collection UUID. See
// record.Applier for what it guarantees. A managed kind's document contains its guard. Load writes
// no guard for a fixed-name kind, because a second document and a transaction for each record would
// cost more than half of the speed.
func (n *Records) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
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

func (n *Records) loadGroups(ctx context.Context, j *job, groups []int, results []record.Result) error {
	commands := make(map[string]*writeCommand, len(j.kinds))
	defer func() {
		for _, c := range commands {
			c.release()
		}
	}()
	for _, kind := range j.kinds {
		commands[kind] = &writeCommand{verb: "insert", place: j.targets[kind].Place, single: true}
	}
	for _, g := range groups {
		results[g] = record.Result{Outcome: record.Applied}
		p := &j.groups[g]
		for i := range p.Writes {
			w := &p.Writes[i]
			// Load writes no tombstones; the loaders are fenced and compared before a delete
			// matters.
			if w.Doc == nil {
				continue
			}
			write := guardWrite{doc: w.Doc, layout: p.layouts[i], id: w.Key.Value()}
			if !j.targets[w.Kind].fixed {
				write.guard = p.guard.Bytes()
			}
			commands[w.Kind].addInsert(g, write)
		}
	}
	for _, kind := range j.kinds {
		for _, part := range commands[kind].parts {
			if err := n.insertPart(ctx, commands[kind], part, results); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Records) insertPart(ctx context.Context, c *writeCommand, part *writePart, results []record.Result) error {
	what := "insert " + c.place.Coll
	_, err := n.Run(ctx, c.finish(part))
	if err == nil {
		return nil
	}
	var exception mongo.WriteException
	// Without a majority, the outcome of every insert is unknown.
	if !errors.As(err, &exception) || exception.WriteConcernError != nil {
		return conn.ClassifyWrite(what, err)
	}
	// Unordered inserts report each failed document; the others are written.
	for _, we := range exception.WriteErrors {
		// The server names no statement of ours, so nothing is known.
		if we.Index < 0 || we.Index >= len(part.owners) {
			return conn.ClassifyWrite(what, err)
		}
		g := part.owners[we.Index]
		switch verdict, reason := Judge(what, we); {
		case verdict == Refused:
			results[g] = record.Result{Outcome: record.Refused, Err: n.Located(ctx, c.place.Coll, we.Code, reason)}
		case verdict != present:
			return reason
		// A refusal of another document of the group is the more useful answer, so keep it.
		case results[g].Outcome == record.Applied:
			results[g] = record.Result{Outcome: record.Changed}
		}
	}
	return nil
}
