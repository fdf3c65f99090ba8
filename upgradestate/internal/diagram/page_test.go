package main

import (
	"os"
	"testing"
)

func TestCommittedPageIsCurrent(t *testing.T) {
	want, err := Page()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../docs/state-diagram.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/state-diagram.md is not what the machine does: go run ./upgradestate/internal/diagram > docs/state-diagram.md")
	}
}
