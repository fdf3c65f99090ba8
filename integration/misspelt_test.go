package integration_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"dbcontroller.dev/internal/control/deployment"
)

// TestMisspeltKind: a first start with the name of a collection that is not there records nothing,
// and says which version, database and collection it looked for. A deployment that an earlier build
// recorded at the wrong version so begins where the data are, once the name is corrected.
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
	wrong := strings.Replace(string(right), "from: "+packagesKind, "from: pakages", 1)
	if wrong == string(right) {
		t.Fatalf("the configuration has no kind to misspell:\n%s", right)
	}
	s.write("config.yaml", wrong)
	s.refusesToRun(ctx, nil, "would begin at v2", s.db["v2"].Name(), "collection packages", "correct kinds")
	if d, err := s.record.Get(ctx); !errors.Is(err, deployment.ErrNotFound) {
		t.Fatalf("recorded is %+v, %v", d, err)
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
