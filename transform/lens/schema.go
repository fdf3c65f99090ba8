package lens

import (
	"encoding/json"

	"github.com/invopop/jsonschema"

	"dbcontroller.dev/transform/lens/internal/fanout"
	"dbcontroller.dev/transform/lens/internal/operation"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Schema returns the JSON Schema of the format, for editors. It covers the forms of all keys and
// operations. Only Parse checks whether operations can follow each other.
func Schema() []byte {
	root := object("A lens: how records of one version become records of the next, and back.")
	for _, k := range topKeys() {
		s := k.schema()
		s.Description = k.doc
		root.Properties.Set(k.name, s)
		if k.required {
			root.Required = append(root.Required, k.name)
		}
	}
	one := uint64(1)
	each := object("An operation: a mapping with its name as the only key.")
	each.MinProperties, each.MaxProperties = &one, &one
	for _, o := range operations() {
		s := reflected(o.body)
		s.Description = o.doc
		each.Properties.Set(o.name, s)
	}
	// Operations may contain operations, so the schema refers to them by name.
	root.Version, root.Title = jsonschema.Version, "lens"
	root.Definitions = jsonschema.Definitions{"operation": each}
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // the schema is made of constants
	}
	return append(text, '\n')
}

func object(doc string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", Description: doc, Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema}
}

// reflected returns the schema of one of the types below.
func reflected(v any) *jsonschema.Schema {
	r := jsonschema.Reflector{Anonymous: true, DoNotReference: true, ExpandedStruct: true}
	s := r.Reflect(v)
	// A nested schema must not declare a version of its own.
	s.Version = ""
	return s
}

func reflectedAs(v any) func() *jsonschema.Schema {
	return func() *jsonschema.Schema { return reflected(v) }
}

// These types are the bodies of the file's keys and of the operations. Only the schema uses them.
// The parser reads YAML nodes, because it reports lines and columns.
type (
	kindsBody struct {
		From plainText `json:"from" jsonschema_description:"The kind of the old version."`
		To   plainText `json:"to" jsonschema_description:"The kind of the new version."`
	}
	keyBody struct {
		From    keyFormValue        `json:"from" jsonschema_description:"The form of the old version's keys: a pattern such as projects/{project}/secrets/{secret} or {id:objectId}, or the fields of a document with a pattern for each."`
		To      keyFormValue        `json:"to" jsonschema_description:"The form of the new version's keys."`
		With    map[string]keyValue `json:"with,omitempty" jsonschema_description:"What the variables are that only the new pattern has."`
		Without map[string]keyValue `json:"without,omitempty" jsonschema_description:"What the variables are that only the old pattern has."`
	}
	keyFieldBody struct {
		Field fieldPath  `json:"field" jsonschema_description:"The field that holds the variable."`
		Keep  bool       `json:"keep,omitempty" jsonschema_description:"The other side has the field too."`
		Type  idTypeName `json:"type,omitempty" jsonschema_description:"The type of the field, where it is another than that of the variable in the key."`
	}
	partFieldBody struct {
		Field fieldPath  `json:"field" jsonschema_description:"The field that holds the variable."`
		Type  idTypeName `json:"type,omitempty" jsonschema_description:"The type of the field, where it is another than that of the variable in the key."`
	}
	renameBody struct {
		From fieldPath `json:"from" jsonschema_description:"The field of the old version."`
		To   fieldPath `json:"to" jsonschema_description:"Its name in the new version, in the same object."`
	}
	moveBody struct {
		From fieldPath `json:"from" jsonschema_description:"The field of the old version."`
		To   fieldPath `json:"to" jsonschema_description:"Where it is in the new version."`
	}
	convertBody struct {
		Field    fieldPath      `json:"field" jsonschema_description:"The field, as it is called at this point."`
		From     valueTypeName  `json:"from,omitempty" jsonschema_description:"The type in the old version."`
		To       valueTypeName  `json:"to,omitempty" jsonschema_description:"The type in the new version."`
		Table    map[string]any `json:"table,omitempty" jsonschema_description:"The values of the old version with those of the new one, one for one."`
		Rounding string         `json:"rounding,omitempty" jsonschema:"enum=seconds" jsonschema_description:"Dates may have milliseconds, which an epoch does not have; they keep them where the second is the same."`
	}
	addBody struct {
		Field   fieldPath `json:"field" jsonschema_description:"The field of the new version."`
		Value   any       `json:"value,omitempty" jsonschema_description:"A constant, which only the lens decides on."`
		Default any       `json:"default,omitempty" jsonschema_description:"The value of new records; the new version owns the field."`
	}
	removeBody struct {
		Field   fieldPath `json:"field" jsonschema_description:"The field of the old version."`
		Default any       `json:"default,omitempty" jsonschema_description:"What the reverse writes into records that the old version never had."`
	}
	copyBody struct {
		From fieldPath `json:"from" jsonschema_description:"The field whose value is copied."`
		To   fieldPath `json:"to" jsonschema_description:"The new version's field, which it owns."`
	}
	fieldBody struct {
		Field fieldPath `json:"field" jsonschema_description:"The field, as it is called at this point."`
	}
	splitBody struct {
		Field     fieldPath   `json:"field" jsonschema_description:"The field of the old version, a string."`
		To        []fieldPath `json:"to" jsonschema:"minItems=2" jsonschema_description:"The fields of the new version, one for each part."`
		Separator plainText   `json:"separator" jsonschema_description:"What stands between the parts."`
		Rest      bool        `json:"rest,omitempty" jsonschema_description:"The last part is all that is left, with separators."`
	}
	joinBody struct {
		Fields    []fieldPath `json:"fields" jsonschema:"minItems=2" jsonschema_description:"The fields of the old version, strings."`
		To        fieldPath   `json:"to" jsonschema_description:"The field of the new version."`
		Separator plainText   `json:"separator" jsonschema_description:"What stands between the parts."`
		Rest      bool        `json:"rest,omitempty" jsonschema_description:"The last part may hold separators."`
	}
	listingBody struct {
		Field     fieldPath `json:"field" jsonschema_description:"The field, as it is called at this point."`
		Separator plainText `json:"separator" jsonschema_description:"What stands between the items."`
		Tidy      bool      `json:"tidy,omitempty" jsonschema_description:"Items have no blanks around them, and empty ones are left out."`
	}
	normalizeBody struct {
		Field fieldPath        `json:"field" jsonschema_description:"The field, as it is called at this point."`
		Steps []normalStepName `json:"steps" jsonschema:"minItems=1" jsonschema_description:"What is done to a value of the old version, in order."`
	}
	eachBody struct {
		Field      fieldPath      `json:"field" jsonschema_description:"A list or a map."`
		In         containerName  `json:"in,omitempty" jsonschema_description:"Which of the two; without it, as the record has it."`
		Match      fieldPath      `json:"match,omitempty" jsonschema_description:"The field of an item that tells it from the others in its list."`
		Operations operationsList `json:"operations" jsonschema_description:"What is done in each item; the item itself is \".\"."`
	}
	computeBody struct {
		From       []fieldPath           `json:"from" jsonschema:"minItems=1" jsonschema_description:"Fields of the old version."`
		To         []fieldPath           `json:"to" jsonschema:"minItems=1" jsonschema_description:"Fields of the new version."`
		Up         map[string]expression `json:"up" jsonschema_description:"A CEL expression for each field of to, of the fields of from."`
		Down       map[string]expression `json:"down" jsonschema_description:"A CEL expression for each field of from, of the fields of to."`
		FieldOrder fieldOrderName        `json:"fieldOrder,omitempty" jsonschema_description:"Whether objects with their fields in another order are the same: any, the default, or exact."`
	}
	hookBody struct {
		Name       plainText      `json:"name" jsonschema_description:"The name under which the program has the hook."`
		From       []fieldPath    `json:"from" jsonschema:"minItems=1" jsonschema_description:"Fields of the old version."`
		To         []fieldPath    `json:"to" jsonschema:"minItems=1" jsonschema_description:"Fields of the new version."`
		FieldOrder fieldOrderName `json:"fieldOrder,omitempty" jsonschema_description:"Whether objects with their fields in another order are the same: exact, the default, or any."`
	}
	referenceBody struct {
		Field    fieldPath                `json:"field" jsonschema_description:"The field that holds the key of another record."`
		Kind     plainText                `json:"kind" jsonschema_description:"The kind that it is a key of."`
		Service  plainText                `json:"service,omitempty" jsonschema_description:"The service of that kind, a name from imports; without it, this one."`
		List     bool                     `json:"list,omitempty" jsonschema_description:"The field is a list of keys."`
		Optional bool                     `json:"optional,omitempty" jsonschema_description:"Values that are no key of the kind stay as they are."`
		With     map[string]partFieldBody `json:"with,omitempty" jsonschema_description:"The fields that hold what only one version's keys have, by its variable."`
		Both     fieldPath                `json:"both,omitempty" jsonschema_description:"The field next to it that lists the old and the new key, while a data update has both held."`
	}
	fanBody struct {
		Field      fieldPath      `json:"field" jsonschema_description:"The list, map or object."`
		As         fanShapeName   `json:"as" jsonschema_description:"What the field is."`
		Kind       plainText      `json:"kind" jsonschema_description:"The kind of the records that its entries are on the other side."`
		Key        keyFormValue   `json:"key" jsonschema_description:"The form of their keys: a pattern such as {_key}/{id}, or the fields of a document with a pattern for each."`
		ID         plainText      `json:"id,omitempty" jsonschema_description:"The field of an item that tells it from the others; of a map, the record's field with the entry's name."`
		Value      plainText      `json:"value,omitempty" jsonschema_description:"The record's field for entries that have no fields of their own."`
		Parent     plainText      `json:"parent,omitempty" jsonschema_description:"The record's field that holds the key of the one it belongs to."`
		Order      plainText      `json:"order,omitempty" jsonschema_description:"The record's field that holds its place."`
		Unnamed    unnamedName    `json:"unnamed,omitempty" jsonschema_description:"parent: an object without an _id is the record that has the _id of the one it belongs to."`
		Empty      emptyName      `json:"empty,omitempty" jsonschema_description:"What the list or map of a new record without entries is: present (the empty one), or absent (the default)."`
		Operations operationsList `json:"operations,omitempty" jsonschema_description:"What is done in each entry."`
	}
)

// These are the plain values of the format. YAML may read them as another type than string; the
// parser then takes their text.
type (
	fieldPath      struct{}
	plainText      struct{}
	valueTypeName  struct{}
	containerName  struct{}
	normalStepName struct{}
	fieldOrderName struct{}
	unnamedName    struct{}
	emptyName      struct{}
	fanShapeName   struct{}
	expression     struct{}
	keyValue       struct{}
	keyFormValue   struct{}
	idTypeName     struct{}
	operationsList struct{}
)

func scalarSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Extras: map[string]any{"type": []string{"string", "number", "boolean", "null"}}}
}

// JSONSchema returns the schema of a path: non-empty parts between dots that do not begin with $. A
// single dot is the item itself, which some operations within an each accept.
func (fieldPath) JSONSchema() *jsonschema.Schema {
	s := scalarSchema()
	s.Pattern = `^(\.|[^.$][^.]*(\.[^.$][^.]*)*)$`
	return s
}

// JSONSchema returns the schema of a text.
func (plainText) JSONSchema() *jsonschema.Schema {
	s := scalarSchema()
	one := uint64(1)
	s.MinLength = &one
	return s
}

// JSONSchema returns the schema of a type of convert.
func (valueTypeName) JSONSchema() *jsonschema.Schema { return oneOfNames(scalar.Types...) }

// JSONSchema returns the schema of a step of normalize.
func (normalStepName) JSONSchema() *jsonschema.Schema { return oneOfNames(operation.NormalSteps...) }

// JSONSchema returns the schema of unnamed.
func (unnamedName) JSONSchema() *jsonschema.Schema { return oneOfNames(fanout.UnnamedParent) }

// JSONSchema returns the schema of empty.
func (emptyName) JSONSchema() *jsonschema.Schema { return oneOfNames(emptyRules...) }

// JSONSchema returns the schema of fieldOrder.
func (fieldOrderName) JSONSchema() *jsonschema.Schema { return oneOfNames(fieldOrders...) }

// JSONSchema returns the schema of the container of an each.
func (containerName) JSONSchema() *jsonschema.Schema {
	return oneOfNames(operation.InList, operation.InMap)
}

// JSONSchema returns the schema of the shape of a fanOut or gather.
func (fanShapeName) JSONSchema() *jsonschema.Schema {
	return oneOfNames(fanout.AsList, fanout.AsMap, fanout.AsObject)
}

func oneOfNames[T ~string](values ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

// JSONSchema returns the schema of a CEL expression.
func (expression) JSONSchema() *jsonschema.Schema { return scalarSchema() }

// JSONSchema returns the schema of a variable's value: a constant or a field.
func (keyValue) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{scalarSchema(), reflected(keyFieldBody{})}}
}

// JSONSchema returns the schema of a key form: a pattern, or the fields of a document.
func (keyFormValue) JSONSchema() *jsonschema.Schema {
	one := uint64(1)
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{reflected(plainText{}), {Type: "object", MinProperties: &one}}}
}

// JSONSchema returns the schema of a type of a key's variable.
func (idTypeName) JSONSchema() *jsonschema.Schema { return oneOfNames(scalar.IDTypes...) }

// JSONSchema returns the schema of a list of operations.
func (operationsList) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Ref: "#/$defs/operation"}}
}

// JSONSchemaExtend requires either from and to, or table.
func (convertBody) JSONSchemaExtend(s *jsonschema.Schema) {
	one := uint64(1)
	if t, ok := s.Properties.Get("table"); ok {
		t.MinProperties = &one
	}
	// Not excludes mixtures: OneOf alone would accept a table with only from or only to.
	s.OneOf = []*jsonschema.Schema{{Required: []string{"from", "to"}}, {Required: []string{"table"}}}
	s.Not = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Required: []string{"table", "from"}}, {Required: []string{"table", "to"}}, {Required: []string{"table", "rounding"}}}}
}

// JSONSchemaExtend requires either value or default.
func (addBody) JSONSchemaExtend(s *jsonschema.Schema) {
	s.OneOf = []*jsonschema.Schema{{Required: []string{"value"}}, {Required: []string{"default"}}}
}

func formatSchema() *jsonschema.Schema { return &jsonschema.Schema{Const: Format} }

func importsSchema() *jsonschema.Schema {
	one := uint64(1)
	file := reflected(plainText{})
	return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{file, {Type: "array", Items: file, MinItems: &one}}}}
}
