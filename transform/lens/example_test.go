package lens_test

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller/transform/lens"
)

func ExampleParse() {
	l, err := lens.Parse("packages.yaml", []byte(`
lens: 1
operations:
  - rename: {from: section, to: category}
  - move: {from: homepage, to: links.homepage}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	old, _ := bson.Marshal(bson.D{{Key: "_id", Value: "bash"}, {Key: "section", Value: "shells"}, {Key: "homepage", Value: "https://gnu.org"}})
	up, err := l.Up(old, nil)
	fmt.Println(up, err)
	down, err := l.Down(up, old)
	fmt.Println(down, err)

	_, err = lens.Parse("bad.yaml", []byte("operations:\n  - renam: {from: a, to: b}"))
	fmt.Println(err)
	// Output:
	// {"_id": "bash","category": "shells","links": {"homepage": "https://gnu.org"}} <nil>
	// {"_id": "bash","section": "shells","homepage": "https://gnu.org"} <nil>
	// bad.yaml:2:5: unknown operation "renam"; allowed: rename, move, convert, add, remove
}
