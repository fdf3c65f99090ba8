package lens_test

import (
	"slices"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"dbcontroller.dev/transform/lens"
)

// counted counts the items that are read from a list.
type counted struct {
	traits.Lister
	reads *int
}

func (c counted) Iterator() traits.Iterator { return countedItems{c.Lister.Iterator(), c.reads} }

type countedItems struct {
	traits.Iterator
	reads *int
}

func (c countedItems) Next() ref.Val {
	*c.reads++
	return c.Iterator.Next()
}

// TestSizeOfSharedLists: lists that share their items have as many leaves as paths. Empty texts count
// too, so that the search for the size ends at the limit.
func TestSizeOfSharedLists(t *testing.T) {
	t.Parallel()
	reads := 0
	list := func(item ref.Val) ref.Val {
		return counted{types.DefaultTypeAdapter.NativeToValue(slices.Repeat([]ref.Val{item}, 10)).(traits.Lister), &reads}
	}
	nested := list(types.String(""))
	for range 6 {
		nested = list(nested)
	}
	if n := lens.JoinedSize([]ref.Val{nested}); n <= lens.MaxText {
		t.Errorf("ten million items have %d bytes", n)
	}
	if most := 2 * lens.MaxText / lens.ItemBytes; reads > most {
		t.Errorf("more than %d items were read: %d", most, reads)
	}
}
