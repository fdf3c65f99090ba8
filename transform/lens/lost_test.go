package lens

import (
	"reflect"
	"testing"
)

func TestLost(t *testing.T) {
	t.Parallel()
	l := parse(t, "remove: {field: o.legacy}", "rename: {from: o, to: p}", "add: {field: state, default: new}", "copy: {from: a, to: b}", "add: {field: schema, value: 2}",
		"each: {field: items, match: id, operations: [remove: {field: x}, add: {field: y, default: 1}]}", "rename: {from: items, to: parts}")
	up, down := l.Lost()
	if want := []Loss{{Field: "items.*.x", Operation: "each items: remove x"}, {Field: "o.legacy", Operation: "remove o.legacy"}}; !reflect.DeepEqual(up, want) {
		t.Errorf("up %v", up)
	}
	if want := []Loss{{Field: "state", Operation: "add state"}, {Field: "b", Operation: "copy a to b"}, {Field: "parts.*.y", Operation: "each items: add y"}}; !reflect.DeepEqual(down, want) {
		t.Errorf("down %v", down)
	}
	if up, down := parse(t, "rename: {from: a, to: b}", "add: {field: c, value: 1}").Lost(); len(up)+len(down) > 0 {
		t.Errorf("%v, %v", up, down)
	}
}
