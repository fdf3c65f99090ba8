package regions_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"dbcontroller.dev"
	"dbcontroller.dev/examples/secrets"
	"dbcontroller.dev/integration/regions"
	resource "dbcontroller.dev/resource/region"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

// TestDeclaredMoves: a service that would forget the state of a move in some version is refused.
func TestDeclaredMoves(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../examples/secrets/secrets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// lensed replaces the lens by one with one more operation.
	lensed := func(s *dbcontroller.Service, operation string) {
		l, err := lens.Parse("secrets.yaml", append([]byte(nil), string(text)+operation...))
		if err != nil {
			t.Fatal(err)
		}
		set := lens.NewSet()
		set.Add(secrets.Kind, secrets.Kind, l)
		if err := set.Link(); err != nil {
			t.Fatal(err)
		}
		s.Versions[1].Transformers = []transform.Spec{l.Spec(secrets.Kind, secrets.Kind, lens.Managed())}
	}
	with := func(of map[string]resource.Kind, move string) map[string]resource.Kind {
		k := of[secrets.Kind]
		k.Move = move
		return map[string]resource.Kind{secrets.Kind: k}
	}
	for want, change := range map[string]func(*dbcontroller.Service){
		"no configuration given": func(*dbcontroller.Service) {},
		"secrets of v1 has Move, and secrets of version v2 has not": func(s *dbcontroller.Service) {
			s.Versions[1].Regions = with(s.Versions[1].Regions, "")
		},
		"secrets of v2 has Move, and version v1 has not": func(s *dbcontroller.Service) { s.Versions[0].Regions = nil },
		"has no field travel of type string": func(s *dbcontroller.Service) {
			s.Versions[0].Regions, s.Versions[1].Regions = with(s.Versions[0].Regions, "travel"), with(s.Versions[1].Regions, "travel")
		},
		"Move is \"home\", want another field": func(s *dbcontroller.Service) { s.Versions[0].Regions = with(s.Versions[0].Regions, "home") },
		"must carry move of secrets unchanged": func(s *dbcontroller.Service) { lensed(s, "  - rename: {from: move, to: moved}\n") },
		"must carry home of secrets unchanged": func(s *dbcontroller.Service) { lensed(s, "  - rename: {from: home, to: house}\n") },
	} {
		s := regions.Service()
		change(&s)
		err := dbcontroller.ServeArgs(context.Background(), s, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one line with %q", err, want)
		}
	}
}
