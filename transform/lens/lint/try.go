package lint

import (
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Trial is one group's way there and back.
type Trial struct {
	In, Up, Down []record.Record
	// FromNew: In is of the new version, and Up is made of Down.
	FromNew bool
	// Differences are those of the reverse to In; none where only the order of fields differs.
	Differences []Difference
	Exact       bool // it came back as In, to the byte
	// Err ends the way where it was; Direction is the one that failed.
	Err       error
	Direction string
}

// Try takes records, which must be one group, up and down again. have is what the new
// version holds of it; the way down goes over the records themselves where over is set,
// as it does while the old version exists.
func Try(subjects []Subject, in, have []record.Record, over bool) (*Trial, error) {
	up, down, err := directions(subjects)
	if err != nil {
		return nil, err
	}
	t := &Trial{In: in}
	return t, t.trip(way{"up", up, &t.Up}, way{"down", down, &t.Down}, have, over)
}

// TryDown takes records of the new version down and up again; have is what the old version
// holds of them.
func TryDown(subjects []Subject, in, have []record.Record, over bool) (*Trial, error) {
	up, down, err := directions(subjects)
	if err != nil {
		return nil, err
	}
	t := &Trial{In: in, FromNew: true}
	return t, t.trip(way{"down", down, &t.Down}, way{"up", up, &t.Up}, have, over)
}

// way is one direction of a trial, and what comes of it.
type way struct {
	name string
	dir  transform.Direction
	made *[]record.Record
}

func (t *Trial) trip(there, back way, have []record.Record, over bool) error {
	in := t.In
	var id transform.GroupID
	for i, r := range in {
		at, ok, err := groupOf(there.dir, r)
		switch {
		case !ok && err == nil:
			return fmt.Errorf("no lens has the kind %s", r.Kind)
		case err != nil:
			t.Err, t.Direction = err, there.name
			return nil
		case i > 0 && at != id:
			return fmt.Errorf("%s %s and %s %s do not belong together: give the records of one group", in[0].Kind, in[0].Key, r.Kind, r.Key)
		}
		id = at
	}
	transform.SortRecords(in)
	transform.SortRecords(have)
	if *there.made, t.Err = run(there.dir, id, in, have); t.Err != nil {
		t.Direction = there.name
		return nil
	}
	var complement []record.Record
	if over {
		complement = in
	}
	if *back.made, t.Err = run(back.dir, id, *there.made, complement); t.Err != nil {
		t.Direction = back.name
		return nil
	}
	t.Differences, t.Exact = differences(in, *back.made), exact(in, *back.made)
	return nil
}

// Reason is an error of a transform as people read it: where in the lens, which field, why.
func Reason(err error) string { return oneLine(plain(err)) }
