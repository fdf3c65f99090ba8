package backfill

import (
	"fmt"
	"os"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

// FromLens is a task that brings each record up through the lens of a file. What is up
// already it leaves alone; what has a default in the lens and is missing it fills in.
func FromLens(name, version, kind, file string) (transform.Task, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return transform.Task{}, fmt.Errorf("update %s: %w", name, err)
	}
	l, err := lens.Parse(file, text)
	if err != nil {
		return transform.Task{}, fmt.Errorf("update %s: %w", name, err)
	}
	change, revision, err := l.InPlace(kind)
	if err != nil {
		return transform.Task{}, fmt.Errorf("update %s: %w", name, err)
	}
	return transform.Task{
		Name: name, Version: version, Kind: kind, Revision: revision,
		Func: func(r record.Record) (bson.Raw, error) { return change(r.Doc) },
	}, nil
}
