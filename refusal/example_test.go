package refusal_test

import (
	"errors"
	"fmt"

	"dbcontroller.dev/refusal"
)

// A handler refuses a call with a reason that programs can read.
func ExampleNew() {
	err := refusal.New(refusal.VersionNotServed, errors.New("v1 is not served: use v2 or v3"), refusal.MetaOldest, "v2", refusal.MetaNewest, "v3")
	fmt.Println(err.Code(), err.Message())
	// Output: unimplemented v1 is not served: use v2 or v3
}

// A client decides by the reason whether it sends the call again.
func ExampleOf() {
	var err error = refusal.New(refusal.Held, errors.New("a switch is under way")) // of a call
	reason, _ := refusal.Of(err)
	fmt.Println(reason, reason.Again())
	reason, meta := refusal.Of(refusal.New(refusal.VersionNotActive, errors.New("v1 is active"), refusal.MetaActive, "v1"))
	fmt.Println(reason, reason.Again(), meta[refusal.MetaActive])
	// Output:
	// HELD true
	// VERSION_NOT_ACTIVE false v1
}
