package listing_test

import (
	"fmt"

	"dbcontroller.dev/apiversion/listing"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
)

func ExampleParseFilter() {
	lrp := &bbsv1.DesiredLRP{ProcessGuid: "g", Domain: "apps", Instances: 3, Definition: &bbsv1.Definition{Ports: []uint32{8080}}}
	d := lrp.ProtoReflect().Descriptor()
	f, err := listing.ParseFilter(`domain == "apps" && definition.ports.contains(8080) && !has(routes)`, d)
	fmt.Println(f.Eval(lrp), err)
	_, err = listing.ParseFilter(`instances > "2"`, d)
	fmt.Println(err)
	// Output:
	// true <nil>
	// invalid_argument: filter: instances: is an integer and cannot be compared with a string
}
