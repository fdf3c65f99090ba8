package lens

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Lens is a parsed lens. It may be used concurrently. The zero Lens changes nothing.
type Lens struct {
	up, down program
	digest   string
	file     string
	kinds    kindNames
	keys     *keys // nil where the key does not change
	fans     []*fan
	// references follow the keys of other lenses. linked is a digest of those, empty
	// until they are found.
	references []*reference
	imports    map[string]importedService
	linked     string
}

// Up returns the new version's document for an old one. have is what the new side holds,
// nil for nothing. The result may be doc itself; neither is ever written to. A document
// without _id, of a record that has no name yet, comes out without one.
func (l *Lens) Up(doc, have bson.Raw) (bson.Raw, error) { return l.up.run(doc, have) }

// Down is Up the other way.
func (l *Lens) Down(doc, have bson.Raw) (bson.Raw, error) { return l.down.run(doc, have) }

// compile sets the operations of both directions.
func (l *Lens) compile(ops []op) error {
	var err error
	if l.up, err = compileProgram(ops); err != nil {
		return err
	}
	l.down, err = compileProgram(inverses(ops))
	return err
}

// inverses returns the reverse.
func inverses(ops []op) []op {
	out := make([]op, 0, len(ops))
	for _, o := range slices.Backward(ops) {
		out = append(out, o.inverse())
	}
	return out
}
