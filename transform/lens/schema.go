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
	root := object("A lens describes how records of one version become records of the next, and back.")
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
		From    keyFormValue        `json:"from" jsonschema_description:"The form of the old version's keys: a pattern such as projects/{project}/secrets/{secret} or {id:objectId}, or a document with a pattern for each field."`
		To      keyFormValue        `json:"to" jsonschema_description:"The form of the new version's keys."`
		With    map[string]keyValue `json:"with,omitempty" jsonschema_description:"The values of the variables that only the new pattern has."`
		Without map[string]keyValue `json:"without,omitempty" jsonschema_description:"The values of the variables that only the old pattern has."`
	}
	keyFieldBody struct {
		Field fieldPath  `json:"field" jsonschema_description:"The field that holds the variable."`
		Keep  bool       `json:"keep,omitempty" jsonschema_description:"The field exists on the other side too."`
		Type  idTypeName `json:"type,omitempty" jsonschema_description:"The type of the field, if it differs from the type of the variable in the key."`
	}
	partFieldBody struct {
		Field fieldPath  `json:"field" jsonschema_description:"The field that holds the variable."`
		Type  idTypeName `json:"type,omitempty" jsonschema_description:"The type of the field, if it differs from the type of the variable in the key."`
	}
	renameBody struct {
		From fieldPath `json:"from" jsonschema_description:"The field of the old version."`
		To   fieldPath `json:"to" jsonschema_description:"The name in the new version, in the same object."`
	}
	moveBody struct {
		From fieldPath `json:"from" jsonschema_description:"The field of the old version."`
		To   fieldPath `json:"to" jsonschema_description:"The path of the field in the new version."`
	}
	convertBody struct {
		Field    fieldPath      `json:"field" jsonschema_description:"The field, by its name before this operation."`
		From     valueTypeName  `json:"from,omitempty" jsonschema_description:"The type in the old version."`
		To       valueTypeName  `json:"to,omitempty" jsonschema_description:"The type in the new version."`
		Table    map[string]any `json:"table,omitempty" jsonschema_description:"The values of the old version, each with its value in the new version."`
		Rounding string         `json:"rounding,omitempty" jsonschema:"enum=seconds" jsonschema_description:"Allows dates with milliseconds, which an epoch lacks. The reverse keeps the milliseconds if the second is the same."`
	}
	addBody struct {
		Field   fieldPath `json:"field" jsonschema_description:"The field of the new version."`
		Value   any       `json:"value,omitempty" jsonschema_description:"A constant, which only the lens sets."`
		Default any       `json:"default,omitempty" jsonschema_description:"The value of new records; the new version owns the field."`
	}
	removeBody struct {
		Field   fieldPath `json:"field" jsonschema_description:"The field of the old version."`
		Default any       `json:"default,omitempty" jsonschema_description:"The value that the reverse writes into records that the old version never had."`
	}
	copyBody struct {
		From fieldPath `json:"from" jsonschema_description:"The field whose value is copied."`
		To   fieldPath `json:"to" jsonschema_description:"The field of the new version, which only the new version changes."`
	}
	fieldBody struct {
		Field fieldPath `json:"field" jsonschema_description:"The field, by its name before this operation."`
	}
	splitBody struct {
		Field     fieldPath   `json:"field" jsonschema_description:"The field of the old version, a string."`
		To        []fieldPath `json:"to" jsonschema:"minItems=2" jsonschema_description:"The fields of the new version, one for each part."`
		Separator plainText   `json:"separator" jsonschema_description:"The separator between the parts."`
		Rest      bool        `json:"rest,omitempty" jsonschema_description:"The last part takes the rest of the string, with its separators."`
	}
	joinBody struct {
		Fields    []fieldPath `json:"fields" jsonschema:"minItems=2" jsonschema_description:"The fields of the old version, strings."`
		To        fieldPath   `json:"to" jsonschema_description:"The field of the new version."`
		Separator plainText   `json:"separator" jsonschema_description:"The separator between the parts."`
		Rest      bool        `json:"rest,omitempty" jsonschema_description:"The last part may contain separators."`
	}
	listingBody struct {
		Field     fieldPath `json:"field" jsonschema_description:"The field, by its name before this operation."`
		Separator plainText `json:"separator" jsonschema_description:"The separator between the items."`
		Tidy      bool      `json:"tidy,omitempty" jsonschema_description:"Removes blanks around items, and empty items."`
	}
	normalizeBody struct {
		Field fieldPath        `json:"field" jsonschema_description:"The field, by its name before this operation."`
		Steps []normalStepName `json:"steps" jsonschema:"minItems=1" jsonschema_description:"The steps that normalize a value of the old version, in order."`
	}
	eachBody struct {
		Field      fieldPath      `json:"field" jsonschema_description:"A list or a map."`
		In         containerName  `json:"in,omitempty" jsonschema_description:"list or map. Without it, the record decides."`
		Match      fieldPath      `json:"match,omitempty" jsonschema_description:"The field that identifies an item in its list."`
		Operations operationsList `json:"operations" jsonschema_description:"The operations on each item; the item itself is \".\"."`
	}
	computeBody struct {
		From       []fieldPath           `json:"from" jsonschema:"minItems=1" jsonschema_description:"Fields of the old version."`
		To         []fieldPath           `json:"to" jsonschema:"minItems=1" jsonschema_description:"Fields of the new version."`
		Up         map[string]expression `json:"up" jsonschema_description:"A CEL expression for each field of to. It uses the fields of from."`
		Down       map[string]expression `json:"down" jsonschema_description:"A CEL expression for each field of from. It uses the fields of to."`
		FieldOrder fieldOrderName        `json:"fieldOrder,omitempty" jsonschema_description:"Whether objects whose fields have another order are equal: any (yes, the default), or exact (no)."`
	}
	hookBody struct {
		Name       plainText      `json:"name" jsonschema_description:"The name of the hook in the program."`
		From       []fieldPath    `json:"from" jsonschema:"minItems=1" jsonschema_description:"Fields of the old version."`
		To         []fieldPath    `json:"to" jsonschema:"minItems=1" jsonschema_description:"Fields of the new version."`
		FieldOrder fieldOrderName `json:"fieldOrder,omitempty" jsonschema_description:"Whether objects whose fields have another order are equal: exact (no, the default), or any (yes)."`
	}
	referenceBody struct {
		Field    fieldPath                `json:"field" jsonschema_description:"The field that holds the key of another record."`
		Kind     plainText                `json:"kind" jsonschema_description:"The kind of the record that the key refers to."`
		Service  plainText                `json:"service,omitempty" jsonschema_description:"The service of the kind, a name from imports. Without it, this service."`
		List     bool                     `json:"list,omitempty" jsonschema_description:"The field is a list of keys."`
		Optional bool                     `json:"optional,omitempty" jsonschema_description:"Values that are not a key of the kind stay as they are."`
		With     map[string]partFieldBody `json:"with,omitempty" jsonschema_description:"For each variable that only the keys of one version have, the field that holds it."`
		Both     fieldPath                `json:"both,omitempty" jsonschema_description:"The field of the same object that lists the old and the new key while records hold both keys."`
	}
	fanBody struct {
		Field      fieldPath      `json:"field" jsonschema_description:"The list, map or object."`
		As         fanShapeName   `json:"as" jsonschema_description:"The type of the field: list, map or object."`
		Kind       plainText      `json:"kind" jsonschema_description:"The kind of the records that the entries are on the other side."`
		Key        keyFormValue   `json:"key" jsonschema_description:"The form of the keys of these records: a pattern such as {_key}/{id}, or a document with a pattern for each field."`
		ID         plainText      `json:"id,omitempty" jsonschema_description:"The field that identifies an item in a list; for a map, the field of the record that holds the name of the entry."`
		Value      plainText      `json:"value,omitempty" jsonschema_description:"The field of the record that holds an entry without fields of its own."`
		Parent     plainText      `json:"parent,omitempty" jsonschema_description:"The field of the record that holds the key of its parent."`
		Order      plainText      `json:"order,omitempty" jsonschema_description:"The field of the record that holds its position."`
		Unnamed    unnamedName    `json:"unnamed,omitempty" jsonschema_description:"parent: an object without an _id becomes the record with the _id of its parent."`
		Empty      emptyName      `json:"empty,omitempty" jsonschema_description:"The list or map of a new record without entries: present (an empty one), or absent (the default)."`
		Operations operationsList `json:"operations,omitempty" jsonschema_description:"The operations on each entry."`
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
