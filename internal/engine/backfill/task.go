package backfill

import (
	"context"
	"fmt"
	"os"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

// FromLens returns a task that applies the lens in file to each record. It leaves up-to-date
// records alone, and fills missing fields that have a default in the lens.
//
// keys selects which keys the reference fields hold: new, old or both. A lens with references needs
// it, and a lens without refuses it.
func FromLens(name, version, kind, file string, keys transform.Keys) (transform.Task, error) {
	t := transform.Task{Name: name, Version: version, Kind: kind}
	text, err := os.ReadFile(file) // #nosec G304 -- operators name the file
	if err != nil {
		return transform.Task{}, fmt.Errorf("update %s: %w", name, err)
	}
	l, err := lens.Parse(file, text)
	switch {
	case err != nil:
	// Refuse a setting without effect: the operator expects one.
	case keys != "" && !l.HasReferences():
		err = fmt.Errorf("%s: it has no references that could hold %s keys", file, keys)
	case keys != "":
		err = follow(&t, l, keys)
	case l.HasReferences():
		err = fmt.Errorf("%s has references: set references to the keys that they shall hold, new, old or both", file)
	default:
		var change func(bson.Raw) (bson.Raw, error)
		if change, t.Revision, err = l.InPlace(kind); err == nil {
			t.Func = func(r record.Record) (bson.Raw, error) { return change(r.Doc) }
		}
	}
	if err != nil {
		return transform.Task{}, fmt.Errorf("update %s: %w", name, err)
	}
	return t, nil
}

// follow sets up t for a lens with references.
func follow(t *transform.Task, l *lens.Lens, keys transform.Keys) error {
	f, err := l.Follow(t.Kind, keys)
	if err != nil {
		return err
	}
	t.Revision, t.Imports = f.Revision, f.Imports
	asks := false
	for _, i := range f.Imports {
		asks = asks || i.Asks
	}
	// Without questions no query is needed, so each record changes by itself.
	if !asks {
		t.Func = func(r record.Record) (bson.Raw, error) { return f.Change(r.Doc, nil) }
		return nil
	}
	// Ask for the keys of a whole page at once. One question per record would be too slow.
	t.Prepare = func(ctx context.Context, rs []record.Record, finder transform.KeyFinder) (transform.TaskFunc, error) {
		var asked []transform.Question
		for _, r := range rs {
			of, err := f.Questions(r.Doc)
			if err != nil {
				continue // Change reports it as the record's failure
			}
			asked = append(asked, of...)
		}
		answers, err := finder.FindKeys(ctx, asked)
		if err != nil {
			return nil, err
		}
		return func(r record.Record) (bson.Raw, error) { return f.Change(r.Doc, answers) }, nil
	}
	return nil
}
