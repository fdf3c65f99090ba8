package lens

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// TypeName returns the name of a type in lenses and messages.
func TypeName(t bson.Type) string { return edit.TypeName(t) }
