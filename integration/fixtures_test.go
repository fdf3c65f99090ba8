package integration_test

import (
	"context"
	"testing"
)

// TestBadInputOfFixtures: a server that is to begin a version with what it cannot read does not
// start, and says where that is.
func TestBadInputOfFixtures(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{})
	s.edit(replace("apiVersion: v2", "apiVersion: v2\n  fixtures: [{kind: secrets, file: start.jsonl}]"))
	s.refusesToServe(ctx, "fixtures of v2", "start.jsonl", "no such file")
	s.write("start.jsonl", `{"_id": "a"}`+"\n"+`{"name": "b"}`)
	s.refusesToServe(ctx, "fixtures of v2", "start.jsonl:2", "its _id is not a text")
	s.write("start.jsonl", `{"_id": "a"}`)
	s.edit(replace("kind: secrets,", "kind: secret,"))
	s.refusesToServe(ctx, "fixtures of v2", "secret", "it has no kind", "secrets")
}
