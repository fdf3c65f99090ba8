package lint

import (
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Trial is one group transformed in both directions.
type Trial struct {
	In, Up, Down []record.Record
	// FromNew means that In belongs to the new version, and that Up is made from Down.
	FromNew bool
	// Differences lists the differences between In and the final result. The order of fields does
	// not count.
	Differences []Difference
	Exact       bool // the result equals In byte for byte
	// Err is the error that ended the trial. Direction is the direction that failed.
	Err       error
	Direction string
}

// Try transforms records, which must be one group, up and down again. have is the new version's
// present content of the group. With over, Down gets the records themselves as its complement, as
// it does while the old version exists.
func Try(subjects []Subject, in, have []record.Record, over bool) (*Trial, error) {
	up, down, err := directions(subjects)
	if err != nil {
		return nil, err
	}
	t := &Trial{In: in}
	return t, t.trip(way{"up", up, &t.Up}, way{"down", down, &t.Down}, have, over)
}

// TryDown transforms records of the new version down and up again. have is the old version's
// present content of the group.
func TryDown(subjects []Subject, in, have []record.Record, over bool) (*Trial, error) {
	up, down, err := directions(subjects)
	if err != nil {
		return nil, err
	}
	t := &Trial{In: in, FromNew: true}
	return t, t.trip(way{"down", down, &t.Down}, way{"up", up, &t.Up}, have, over)
}

// TryWay transforms records, which must be one group, there and back again by directions of any
// transform. Up has the result of there, and Down that of back. With over, back gets the records
// themselves as its complement.
func TryWay(there, back transform.Direction, in []record.Record, over bool) (*Trial, error) {
	t := &Trial{In: in}
	return t, t.trip(way{"there", there, &t.Up}, way{"back", back, &t.Down}, nil, over)
}

// way is one direction of a trial and its result.
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
		// Transforming parts of two groups would show results that never occur.
		case i > 0 && at != id:
			return fmt.Errorf("%s %s and %s %s do not belong together: give the records of one group", in[0].Kind, in[0].Key, r.Kind, r.Key)
		}
		id = at
	}
	transform.SortRecords(in)
	transform.SortRecords(have)
	// A failure is a result of the trial, not an error of Try.
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

// Reason returns the text of a transformation error for people, in one line: the operation, the
// field and the reason.
func Reason(err error) string { return oneLine(plain(err)) }
