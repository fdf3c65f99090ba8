package fanout_test

import (
	"errors"
	"strings"
	"testing"

	"dbcontroller.dev/transform/lens"
)

func TestKindParseErrors(t *testing.T) {
	t.Parallel()
	const key = "key: {from: 'a/{a}', to: 'b/{b}/{a}', with: {b: x}}\n"
	for _, tc := range []struct{ name, text, at, want string }{
		{"pattern", "operations: []\nkey: {from: 'a/{a}{b}', to: 'b/{a}'}\n", "2:13", "two variables"},
		{"pattern is a list", "operations: []\nkey: {from: [a], to: 'b/{a}'}\n", "2:13", "must be a pattern"},
		{"item variable", "operations: []\nkey: {from: 'a/{item.x}', to: 'b/{a}'}\n", "2:13", "only for the key of fanOut and gather"},
		{"missing with", "operations: []\nkey: {from: 'a/{a}', to: 'b/{b}/{a}'}\n", "2:26", `only to has {b}; give its value for records of the other side under "with"`},
		{"missing without", "operations: []\nkey: {from: 'a/{a}/{c}', to: 'b/{a}'}\n", "2:13", `only from has {c}; give its value for records of the other side under "without"`},
		{"with of a shared variable", "operations: []\nkey: {from: 'a/{a}', to: 'b/{a}', with: {a: x}}\n", "2:42", `{a} is not one`},
		{"constant with a slash", "operations: []\nkey: {from: 'a/{a}', to: 'b/{b}/{a}', with: {b: x/y}}\n", "2:49", "contains a slash"},
		{"whole key on one side", "operations: []\nkey: {from: '{_key}', to: 'b/{b}', with: {b: x}, without: {_key: x}}\n", "2:13", "{_key} must be in both patterns"},
		{"unknown key of a field", "operations: []\nkey: {from: 'a/{a}', to: 'b/{b}/{a}', with: {b: {feld: x}}}\n", "2:50", `no key "feld"`},
		{"keep", "operations: []\nkey: {from: 'a/{a}', to: 'b/{b}/{a}', with: {b: {field: x, keep: 1}}}\n", "2:66", "true or false"},
		{"field of the key is used", "key: {from: 'a/{a}', to: 'b/{b}/{a}', with: {b: {field: x}}}\noperations:\n  - rename: {from: x, to: y}\n", "3:5", "x is no longer there after operation 1"},
		{"kinds", "operations: []\nkinds: {from: a}\n", "2:8", `needs the key "to"`},
		{"as", "operations:\n  - fanOut: {field: f, as: array, kind: k, key: '{_key}/{index}'}\n", "2:28", "list, map, object"},
		{"no key", "operations:\n  - fanOut: {field: f, as: list, kind: k}\n", "2:13", `needs the key "key"`},
		{"no order", "operations:\n  - fanOut: {field: f, as: list, kind: k, key: '{_key}/{item.x}'}\n", "2:48", "a list needs order"},
		{"no id", "operations:\n  - fanOut: {field: f, as: list, kind: k, key: '{_key}/{id}', order: o}\n", "2:48", `{id} needs the key "id"`},
		{"nothing tells apart", "operations:\n  - fanOut: {field: f, as: list, kind: k, key: '{_key}/x', order: o}\n", "2:48", "nothing in the key identifies the items"},
		{"no parent", "operations:\n  - fanOut: {field: f, as: list, kind: k, key: 'x/{index}'}\n", "2:48", "must begin with the parent's name"},
		{"parent behind", "operations:\n  - fanOut: {field: f, as: list, kind: k, key: '{index}/{_key}'}\n", "2:48", "must begin with the parent's name"},
		{"unknown variable", "operations:\n  - fanOut: {field: f, as: map, kind: k, key: '{_key}/{index}'}\n", "2:47", "there is no {index} for fanOut as map; allowed: {_key}, {id}, {item.<field>}"},
		{"other side's variable", key + "operations:\n  - gather: {field: f, as: map, kind: k, key: 'b/{b}/{a}/{id}'}\n", "3:47", "there is no {b}"},
		{"some of the variables", key + "operations:\n  - fanOut: {field: f, as: map, kind: k, key: 'x/{id}/{a}'}\n", "3:47", "must begin with the parent's name"},
		{"id of an object", "operations:\n  - fanOut: {field: f, as: object, kind: k, key: '{_key}', id: x}\n", "2:64", "an object is one record"},
		{"order of an object", "operations:\n  - fanOut: {field: f, as: object, kind: k, key: '{_key}', order: x}\n", "2:67", "has no order"},
		{"entry nowhere", "operations:\n  - fanOut: {field: f, as: map, kind: k, key: '{_key}/{item.x}'}\n", "2:47", "the name of a map's entry"},
		{"nested child field", "operations:\n  - fanOut: {field: f, as: list, kind: k, key: '{_key}/{index}', parent: a.b}\n", "2:74", "without dots"},
		{"one field twice", "operations:\n  - fanOut: {field: f, as: list, kind: k, key: '{_key}/{index}', parent: a, order: a}\n", "2:84", "name the field a"},
		{"value and id", "operations:\n  - fanOut: {field: f, as: list, kind: k, key: '{_key}/{index}', value: a, id: x}\n", "2:73", "not with id"},
		{"fields of a value", "operations:\n  - fanOut: {field: f, as: list, kind: k, key: '{_key}/{index}', value: v, operations: [{remove: {field: n, default: 1}}]}\n", "2:88", "remove n makes n for entries of f"},
		{"kind twice", "operations:\n  - fanOut: {field: f, as: list, kind: k, key: '{_key}/{index}'}\n  - fanOut: {field: g, as: list, kind: k, key: '{_key}/{index}'}\n", "3:40", "fanOut f already makes the records of k"},
		{"nested", "operations:\n  - fanOut: {field: f, as: list, kind: k, key: '{_key}/{index}', operations: [{fanOut: {field: g, as: object, kind: l, key: '{_key}'}}]}\n", "", "fanOut cannot be within fanOut"},
		{"within each", "operations:\n  - each: {field: f, operations: [{fanOut: {field: g, as: object, kind: l, key: '{_key}'}}]}\n", "", "fanOut cannot be within each"},
		{"within a list", "operations:\n  - fanOut: {field: f, as: list, kind: k, key: '{_key}/{index}'}\n  - rename: {from: f.a, to: f.b}\n", "3:5", "worked on as a single value"},
		{"without and fanOut", "key: {from: 'a/{a}/{c}', to: 'b/{a}', without: {c: {field: x}}}\noperations:\n  - fanOut: {field: f, as: list, kind: k, key: '{_key}/{index}'}\n", "3:48", "key.without"},
		{"reference without kind", "operations:\n  - reference: {field: f}\n", "2:16", `needs the key "kind"`},
		{"service not imported", "operations:\n  - reference: {field: f, kind: k, service: s}\n", "2:45", `service "s" is not in imports`},
		{"self of a service", "operations:\n  - reference: {field: f, kind: self, service: s}\nimports: {s: x.yaml}\n", "2:33", "is of this lens"},
		{"part that is no field", "operations:\n  - reference: {field: f, kind: k, with: {a: x}}\n", "2:43", "with: a must be {field: ...}, the field of this record that holds {a}"},
		{"imports", "operations: []\nimports: [a.yaml]\n", "2:10", "mapping from services to lens files"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := lens.Parse("l.yaml", []byte(tc.text))
			var bad *lens.ParseError
			if !errors.As(err, &bad) {
				t.Fatalf("error is %v", err)
			}
			if !strings.HasPrefix(err.Error(), "l.yaml:"+tc.at) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %q, want %q at %s", err, tc.want, tc.at)
			}
		})
	}
}
