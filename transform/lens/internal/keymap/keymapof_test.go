package keymap_test

import (
	"slices"
	"strings"
	"testing"

	"dbcontroller.dev/transform/lens/internal/lenstest"
)

// TestKeyMap: the names that a resource has besides one of them.
func TestKeyMap(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ lens, name, others string }{
		{lenstest.Users, "users/ann", "orgs/acme/users/ann"},
		{lenstest.Users, "orgs/acme/users/ann", "users/ann"},
		{lenstest.Users, "orgs/other/users/ann", ""},
		{lenstest.Users, "unowned", ""},
		{"operations: []", "x", ""},
		{"key: {from: '{x}', to: 'u-{x}'}\noperations: []", "u-a", "u-u-a a"},
	} {
		m, err := lenstest.Parse(t, tc.lens).KeyMap()
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Others(tc.name); !slices.Equal(got, strings.Fields(tc.others)) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.others)
		}
	}
	for text, want := range map[string]string{
		lenstest.SecretsByLocation:                                   "the name in one version does not determine the name in the other: {region} is a field of the record",
		"key: {from: '{id:objectId}', to: 'u/{id}'}\noperations: []": "the records of one version have no names",
	} {
		if _, err := lenstest.Parse(t, text).KeyMap(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
