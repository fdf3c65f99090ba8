package transform

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TaskFunc computes an update of one record. It returns the new document, with the same _id, or nil
// to leave the record unchanged. It may be called for many records at once. It must not modify or
// keep the bytes that it gets. It must be idempotent, because it may get its own result again.
type TaskFunc func(r record.Record) (bson.Raw, error)

// Task is a data update: a change to all records of a kind within one version, such as filling a
// new field. Package backfill runs it.
type Task struct {
	Name        string // unique in its registry
	Version     string // the API version of the records
	Kind        string
	Revision    string // the author changes it whenever the result of Func changes
	Description string // one line for operators
	Func        TaskFunc
	// Prepare returns the function for a set of records, for example after it has looked up keys
	// for them. The runner calls it again for records that changed since. Its error applies to all
	// the records, and the runner retries them. If it is nil, Func is used.
	Prepare func(ctx context.Context, rs []record.Record, keys KeyFinder) (TaskFunc, error)
	// Imports lists the references to other services that the task follows. Nil means none.
	Imports []Import
	// Follow makes the update begin by itself after each switch of the other service to the version
	// whose keys it writes. Its Imports must then be of one service, and all of new keys or all of
	// old ones.
	Follow bool
}

// Hash identifies the task's effect. Controllers with another hash do not take part.
func (t Task) Hash() string {
	h := sha256.New()
	put(h, "dbcontroller update 1", t.Name, t.Version, t.Kind, t.Revision)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// mayFollow returns an error if no switch decides when the task begins by itself.
func (t Task) mayFollow() error {
	if !t.Follow {
		return nil
	}
	if len(t.Imports) == 0 {
		return errors.New("it cannot follow a switch by itself: it changes no references to another service")
	}
	first := t.Imports[0]
	for _, i := range t.Imports {
		switch {
		case i.Keys != NewKeys && i.Keys != OldKeys:
			return fmt.Errorf("it cannot follow a switch by itself, because it leaves %s keys: begin it by hand before the switch", i.Keys)
		case i.Service != first.Service:
			return fmt.Errorf("it cannot follow %s and %s by itself: make an update for each of them", first.Service, i.Service)
		case i.Keys != first.Keys:
			return fmt.Errorf("it cannot follow a switch by itself, because it leaves both %s and %s keys: make an update for each of them", first.Keys, i.Keys)
		}
	}
	return nil
}

// AddTasks registers data updates. If it returns an error, it added none.
func (r *Registry) AddTasks(tasks ...Task) error {
	// Work on a copy, so that an error below leaves the registry unchanged.
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
		if err := t.mayFollow(); err != nil {
			return fmt.Errorf("add update %s: %w", t.Name, err)
		}
		next = append(next, t)
	}
	r.tasks = next
	return nil
}

// Tasks returns the registered data updates in the order of registration.
func (r *Registry) Tasks() []Task { return slices.Clone(r.tasks) }

// Task returns the data update with the given name. The error lists the registered names.
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
