package transform

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TaskFunc is what a task does to a record: it returns what the document must become, with
// the same _id, or nil to leave it. It is called for many records at once, must not modify
// or keep the bytes that it is given, and must be idempotent: it may get what it made.
type TaskFunc func(r record.Record) (bson.Raw, error)

// Task is a data update: something to be done to all records of a kind within one version,
// such as filling a field that is new. Package backfill runs it.
type Task struct {
	Name        string // unique in its registry
	Version     string // of the API
	Kind        string
	Revision    string // the author changes it when what Func makes changes
	Description string // a line for operators
	Func        TaskFunc
	// Prepare makes the function for some records, of what it asks about them. It is called
	// again for records that have changed since; an error is that of all of them, and they are
	// tried again. Nil: it is Func.
	Prepare func(ctx context.Context, rs []record.Record, keys KeyFinder) (TaskFunc, error)
	// Imports are the references to other services that the task follows. Nil: there are none.
	Imports []Import
}

// Hash identifies what the task does: controllers with another one take no part.
func (t Task) Hash() string {
	h := sha256.New()
	put(h, "dbcontroller update 1", t.Name, t.Version, t.Kind, t.Revision)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// AddTasks registers data updates. With an error nothing was added.
func (r *Registry) AddTasks(tasks ...Task) error {
	next := slices.Clone(r.tasks)
	for _, t := range tasks {
		switch {
		case t.Name == "" || t.Version == "" || t.Kind == "":
			return fmt.Errorf("add update %q: name, version and kind are all needed", t.Name)
		case t.Name == upgradestate.RotateKeys:
			return fmt.Errorf("add update %s: the name is taken, give it another one", t.Name)
		case (t.Func == nil) == (t.Prepare == nil):
			return fmt.Errorf("add update %s: one of Func and Prepare is needed", t.Name)
		case slices.ContainsFunc(next, func(o Task) bool { return o.Name == t.Name }):
			return fmt.Errorf("add update %s: it is there already", t.Name)
		}
		next = append(next, t)
	}
	r.tasks = next
	return nil
}

// Tasks are the data updates that were added, in that order.
func (r *Registry) Tasks() []Task { return slices.Clone(r.tasks) }

// Task finds a data update by its name. The error names those that there are.
func (r *Registry) Task(name string) (Task, error) {
	names := make([]string, len(r.tasks))
	for i, t := range r.tasks {
		if t.Name == name {
			return t, nil
		}
		names[i] = t.Name
	}
	if len(names) == 0 {
		return Task{}, fmt.Errorf("there is no data update %q: there are none here", name)
	}
	return Task{}, fmt.Errorf("there is no data update %q: there are %s", name, strings.Join(names, ", "))
}
