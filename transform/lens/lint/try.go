package lint

import (
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Trial is one group's way there and back.
type Trial struct {
	In, Up, Down []record.Record
	// Differences are those of Down to In; none where only the order of fields differs.
	Differences []Difference
	Exact       bool // Down is In to the byte
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
	var id transform.GroupID
	for i, r := range in {
		at, ok, err := groupOf(up, r)
		switch {
		case !ok:
			return nil, fmt.Errorf("no lens has the kind %s", r.Kind)
		case err != nil:
			t.Err, t.Direction = err, "up"
			return t, nil
		case i > 0 && at != id:
			return nil, fmt.Errorf("%s %s and %s %s do not belong together: give the records of one group", in[0].Kind, in[0].Key, r.Kind, r.Key)
		}
		id = at
	}
	transform.SortRecords(in)
	transform.SortRecords(have)
	if t.Up, t.Err = run(up, id, in, have); t.Err != nil {
		t.Direction = "up"
		return t, nil
	}
	var complement []record.Record
	if over {
		complement = in
	}
	if t.Down, t.Err = run(down, id, t.Up, complement); t.Err != nil {
		t.Direction = "down"
		return t, nil
	}
	t.Differences, t.Exact = differences(t.In, t.Down), exact(t.In, t.Down)
	return t, nil
}

// Reason is an error of a transform as people read it: where in the lens, which field, why.
func Reason(err error) string { return oneLine(plain(err)) }
