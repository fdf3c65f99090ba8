package preflight

import (
	"strings"
	"testing"
	"time"
)

// TestProofLimit: what suffices for a few kinds does not for hundreds.
func TestProofLimit(t *testing.T) {
	t.Parallel()
	if few, many := streamLimit(2), streamLimit(400); few < streamTimeout || many < time.Minute {
		t.Errorf("%s for the changes of two kinds, %s for those of 400", few, many)
	}
	if few, many := proofLimit(2), proofLimit(400); few < proofTimeout || many < 10*time.Minute {
		t.Errorf("a proof of 2 kinds may take %s, one of 400 %s", few, many)
	}
}

// TestProofSaysWhatItDoes, so that one of many kinds does not seem to stand still.
func TestProofSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	w := newProofWorld(t, sectionRequired, sectionUnique, orders(10), ordersSpec(t, ordersLens))
	p := w.proof(nil)
	var said []string
	p.at = func(doing string) { said = append(said, doing) }
	if _, err := p.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"removes", "creates scratch collections of", "migrates records", "renames"} {
		if i >= len(said) || !strings.HasPrefix(said[i], want) || !strings.Contains(said[i], proofLimit(2).String()) {
			t.Errorf("it says %q, want %d to be of what it %s, with its limit", said, i, want)
		}
	}
}
