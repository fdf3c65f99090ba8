package typed_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/typed"
)

func TestMappingOfFields(t *testing.T) {
	t.Parallel()
	tr := compile(t, jobs())
	for _, tc := range []struct {
		m          transform.Mapping
		path, want string
	}{
		{tr.Up, "memory_mb", "[memory]"},
		{tr.Up, "started", "[started]"},
		{tr.Up, "labels.x", "[labels.x]"},
		{tr.Up, "future.thing", "[future.thing]"},
		{tr.Up, "image", "[repository version]"},
		{tr.Up, "last", "[name]"},
		{tr.Up, "tag", "[tag]"},
		{tr.Up, "tag.epoch", "[tag.generation]"},
		{tr.Up, "tag.index", "[tag.index]"},
		{tr.Up, "a", "[b]"},
		{tr.Up, "owner", "[meta.owner]"},
		{tr.Up, "legacy", "legacy: the other version does not have it"},
		{tr.Up, "memory", "memory: there is no such field in this version"},
		{tr.Up, "disk_mb.x", "disk_mb.x: disk_mb is converted as a whole"},
		{tr.Down, "meta", "[owner]"},
		{tr.Down, "name", "[first last]"},
		{tr.Down, "version", "[image]"},
		{tr.Down, "priority", "priority: the other version does not have it"},
	} {
		got, err := tc.m.Field(tc.path)
		if text := fmt.Sprint(got); err != nil && err.Error() != tc.want || err == nil && text != tc.want {
			t.Errorf("%s: %s, %v; want %s", tc.path, text, err, tc.want)
		}
		var refused *transform.MappingError
		if err != nil && (!errors.As(err, &refused) || refused.Field != tc.path) {
			t.Errorf("%s: error names %+v", tc.path, refused)
		}
	}
}

func TestMappingOfComparisons(t *testing.T) {
	t.Parallel()
	p := jobs()
	p.Fields[1] = typed.Monotone("disk_mb", "disk", toQuantity, fromQuantity) // a lie, which is not what is tested
	monotone, tr := compile(t, p), compile(t, jobs())
	for _, tc := range []struct {
		m    transform.Mapping
		c    transform.Condition
		want string
	}{
		{tr.Up, transform.Condition{Path: "memory_mb", Op: transform.OpLess, Values: []any{int64(5)}}, "[{memory < [5]}]"},
		{tr.Up, transform.Condition{Path: "labels.x", Op: transform.OpPrefix, Values: []any{"y"}}, "[{labels.x startsWith [y]}]"},
		{tr.Up, transform.Condition{Path: "disk_mb", Op: transform.OpEqual, Values: []any{int64(5)}}, "[{disk == [5Mi]}]"},
		{tr.Up, transform.Condition{Path: "disk_mb", Op: transform.OpEqual, Values: []any{nil}}, "[{disk == [<nil>]}]"},
		{tr.Up, transform.Condition{Path: "disk_mb", Op: transform.OpIn, Values: []any{int64(5), int64(6)}}, "[{disk in [5Mi 6Mi]}]"},
		{tr.Up, transform.Condition{Path: "disk_mb", Op: transform.OpHas}, "[{disk has []}]"},
		{tr.Up, transform.Condition{Path: "disk_mb", Op: transform.OpLess, Values: []any{int64(5)}}, "disk_mb: its values are converted, and < does not mean the same in the other version"},
		{monotone.Up, transform.Condition{Path: "disk_mb", Op: transform.OpLess, Values: []any{int64(5)}}, "[{disk < [5Mi]}]"},
		{tr.Up, transform.Condition{Path: "disk_mb", Op: transform.OpEqual, Values: []any{"five"}}, "disk_mb: the value cannot be expressed in the other version: it is of type string, not int32"},
		{tr.Up, transform.Condition{Path: "disk_mb", Op: transform.OpEqual, Values: []any{int64(1) << 40}}, "disk_mb: the value cannot be expressed in the other version: it is of type 64-bit integer, not int32"},
		{tr.Down, transform.Condition{Path: "disk", Op: transform.OpPrefix, Values: []any{"5"}}, "disk: its values are converted, and startsWith does not mean the same in the other version"},
		{tr.Down, transform.Condition{Path: "disk", Op: transform.OpEqual, Values: []any{"5Gi"}}, "disk: the value cannot be expressed in the other version: not a number of Mi"},
		{tr.Up, transform.Condition{Path: "image", Op: transform.OpEqual, Values: []any{"repo:1"}}, "[{repository == [repo]} {version == [1]}]"},
		{tr.Up, transform.Condition{Path: "image", Op: transform.OpPrefix, Values: []any{"repo"}}, "image: it is split into repository and version in the other version, and can only be compared for being equal to one value"},
		{tr.Down, transform.Condition{Path: "version", Op: transform.OpEqual, Values: []any{"1"}}, "version: in the other version it is one with repository"},
		{tr.Up, transform.Condition{Path: "legacy", Op: transform.OpHas}, "legacy: the other version does not have it"},
		{tr.Up, transform.Condition{Path: "tag", Op: transform.OpHas}, "tag: its field tag.epoch is another one in the other version"},
		{tr.Down, transform.Condition{Path: "memory_mb", Op: transform.OpHas}, "memory_mb: there is no such field in this version"},
	} {
		got, err := tc.m.Compare(tc.c)
		if text := fmt.Sprint(got); err != nil && err.Error() != tc.want || err == nil && text != tc.want {
			t.Errorf("%s: %s, %v\nwant %s", tc.c.Path, text, err, tc.want)
		}
	}
}

func TestMappingOfDates(t *testing.T) {
	t.Parallel()
	type a struct {
		At time.Time `bson:"at"`
	}
	type b struct {
		Seconds int64 `bson:"seconds"`
	}
	tr := compile(t, typed.Pair[a, b]{Name: "p", OldKind: kind("old"), NewKind: kind("new"), Fields: []typed.Field{
		typed.Monotone("at", "seconds", func(t time.Time) (int64, error) { return t.Unix(), nil }, func(n int64) (time.Time, error) { return time.Unix(n, 0).UTC(), nil })}})
	at := func(nanos int64) transform.Condition {
		return transform.Condition{Path: "at", Op: transform.OpGreater, Values: []any{time.Unix(7, nanos)}}
	}
	if got, err := tr.Up.Compare(at(0)); err != nil || fmt.Sprint(got) != "[{seconds > [7]}]" {
		t.Error(got, err)
	}
	if got, err := tr.Up.Compare(at(int64(time.Millisecond))); err == nil {
		t.Error("a literal that the other version cannot hold was rounded", got)
	}
	if got, err := tr.Up.Compare(at(1)); err == nil {
		t.Error("a literal that no date can hold was rounded", got)
	}
	if got, err := tr.Down.Compare(transform.Condition{Path: "seconds", Op: transform.OpEqual, Values: []any{int64(7)}}); err != nil || !got[0].Values[0].(time.Time).Equal(time.Unix(7, 0)) {
		t.Error(got, err)
	}
}

func TestMappingOfOrder(t *testing.T) {
	t.Parallel()
	p := jobs()
	p.Fields[0] = typed.Monotone("memory_mb", "memory", func(n int32) (int32, error) { return n, nil }, func(n int32) (int32, error) { return n, nil })
	tr := compile(t, p)
	for path, want := range map[string]string{
		"memory_mb": "memory", "started": "started", "tag.epoch": "tag.generation", "future": "future",
		"disk_mb": "", "image": "", "last": "", "legacy": "",
	} {
		got, err := tr.Up.Order(path)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
}
