package integration_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"dbcontroller.dev/internal/control/deployment"
)

// TestMisspeltKind: a first start with the name of a collection or database that does not exist
// records nothing, and the message names the version, database and collection that the controller
// looked for. The corrected configuration begins where the data are, even if an earlier build
// recorded the wrong version.
func TestMisspeltKind(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{decide: true})
	insert(ctx, s, "v1", packageDoc("v1", "a", 0))
	right, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	v1, v2 := s.db["v1"].Name(), s.db["v2"].Name()
	for _, tc := range []struct {
		name, from, to string
		want           []string
	}{
		{
			name: "kind", from: "from: " + packagesKind, to: "from: pakages",
			want: []string{"would begin at v2, in mongo:" + v2, "collection packages", "correct kinds", "config.yaml; v1, in mongo:" + v1 + " (", "has no collection pakages"},
		},
		{
			name: "database", from: "database: " + v1, to: "database: " + v1 + "x",
			want: []string{"would begin at v2, in mongo:" + v2, "v1, in mongo:" + v1 + "x (", "has no collection packages"},
		},
		{
			name: "one of two kinds", from: "kinds: [", to: "kinds: [{from: pakages, to: pakages, lens: packages.yaml}, ",
			want: []string{"kinds in config.yaml: mongo:" + v1 + " (", "inspect v1/pakages: collection pakages", "correct kinds"},
		},
	} {
		wrong := strings.Replace(string(right), tc.from, tc.to, 1)
		if wrong == string(right) {
			t.Fatalf("%s: the configuration has no %q:\n%s", tc.name, tc.from, right)
		}
		s.write("config.yaml", wrong)
		s.refusesToRun(ctx, nil, tc.want...)
		if d, err := s.record.Get(ctx); !errors.Is(err, deployment.ErrNotFound) {
			t.Fatalf("%s: recorded is %+v, %v", tc.name, d, err)
		}
	}
	if _, err := s.record.Create(ctx, "v2", ring); err != nil {
		t.Fatal(err)
	}
	s.write("config.yaml", string(right))
	s.controller("controller", breakPoint{}).ready(ctx)
	if d, err := s.record.Get(ctx); err != nil || d.CurrentVersion != "v1" {
		t.Errorf("it begins at %s, %v", d.CurrentVersion, err)
	}
}
