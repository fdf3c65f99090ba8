package record_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"dbcontroller.dev/record"
)

func guards() *rapid.Generator[record.Guard] {
	return rapid.Custom(func(t *rapid.T) record.Guard {
		g := record.Guard{Epoch: rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 3)).Draw(t, "epoch")}
		// Short random tails make versions that share a prefix.
		copy(g.Version[:], rapid.SliceOfN(rapid.Byte(), 0, len(g.Version)).Draw(t, "version"))
		return g
	})
}

func TestGuardBytesOrderAsCompare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, h := guards().Draw(t, "g"), guards().Draw(t, "h")
		if have, want := bytes.Compare(g.Bytes(), h.Bytes()), g.Compare(h); have != want {
			t.Fatalf("bytes compare as %d, guards as %d", have, want)
		}
		if g.Compare(h) != -h.Compare(g) || (g.Compare(h) == 0) != (g == h) {
			t.Fatalf("compare of %v and %v is no order", g, h)
		}
		if (record.Guard{}).Compare(g) > 0 {
			t.Fatalf("%v is lower than an absent guard", g)
		}
	})
}

func TestGuardRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := guards().Draw(t, "g")
		b := g.Bytes()
		if h, ok := record.GuardFrom(b); !ok || h != g || len(b) != record.GuardSize {
			t.Fatalf("%v came back as %v, %t", g, h, ok)
		}
		for _, wrong := range [][]byte{nil, b[1:], append(b, 0)} {
			if _, ok := record.GuardFrom(wrong); ok {
				t.Fatalf("%d bytes are a guard", len(wrong))
			}
		}
	})
}

func TestVersionText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := record.Position{At: guards().Draw(t, "g").Version, Token: rapid.SliceOf(rapid.Byte()).Draw(t, "token")}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var q record.Position
		if err := json.Unmarshal(b, &q); err != nil || q.At != p.At || !bytes.Equal(q.Token, p.Token) {
			t.Fatalf("%s came back as %v, %v", b, q, err)
		}
		if p.IsZero() != (p.At.IsZero() && len(p.Token) == 0) {
			t.Fatalf("%v: zero is %t", p, p.IsZero())
		}
	})
	for _, bad := range []string{"", "00", "zz", "0102030405060708090a0b0c0d0e0f1", "0102030405060708090a0b0c0d0e0fzz", "0102030405060708090a0b0c0d0e0f1011"} {
		var v record.Version
		if err := v.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is a version", bad)
		}
	}
}
