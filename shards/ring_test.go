package shards_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/shards"
)

// Running upgrades depend on these: a change of any is a change of format.
func TestOfIsStable(t *testing.T) {
	got := map[string]int{}
	for _, group := range []string{"", "a", "guid-1", "projects/p/secrets/s", "ключ", "\x00\xff"} {
		got[group] = shards.Of(group, 1<<16)
	}
	want := map[string]int{
		"":                     59801,
		"a":                    28251,
		"guid-1":               48200,
		"projects/p/secrets/s": 11497,
		"ключ":                 53660,
		"\x00\xff":             7549,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOfSpreadsEvenly(t *testing.T) {
	const groups = 100_000
	for _, ring := range []int{1, 2, 7, 16, 100, 256} {
		for name, format := range map[string]string{"numbers": "%d", "padded": "record-%09d", "nested": "p/%d/s"} {
			count := make([]int, ring)
			for i := range groups {
				s := shards.Of(fmt.Sprintf(format, i), ring)
				if s < 0 || s >= ring {
					t.Fatalf("shard %d of %d", s, ring)
				}
				count[s]++
			}
			mean := groups / ring
			for s, n := range count {
				if n < mean*8/10 || n > mean*12/10 {
					t.Errorf("%s: shard %d of %d has %d groups, the mean is %d", name, s, ring, n, mean)
				}
			}
		}
	}
}

func ExampleOf() {
	fmt.Println(shards.Of("guid-1", 16) == shards.Of("guid-1", 16)) //nolint:staticcheck // SA4000: that both calls have the same answer is the example
	// Output: true
}

func TestRingIsFrozen(t *testing.T) {
	store := memcoord.New()
	if _, err := store.Commit(t.Context(), nil, []coord.Op{{Key: "d/ring", Value: []byte("16")}}); err != nil {
		t.Fatal(err)
	}
	err := shards.New(store, shards.Config{Prefix: "d/", ID: "a", Ring: 32}).Run(t.Context())
	if !errors.Is(err, shards.ErrRing) {
		t.Fatalf("Run = %v, want ErrRing", err)
	}
	t.Log(err)
	for name, cfg := range map[string]shards.Config{"no id": {Ring: 1}, "no ring": {ID: "a"}} {
		if err := shards.New(store, cfg).Run(t.Context()); err == nil {
			t.Errorf("%s: Run succeeded", name)
		}
	}
}
