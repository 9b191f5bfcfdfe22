package apiserver

import (
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"limpet/sync/api"
)

// The types that server-side apply needs: which lists merge, and by which key.
// Metadata has the types of the API machinery. There is no schema below spec and
// status, so maps merge by member and lists are replaced whole.

const (
	typeAtomic   = "atomic"
	typeAny      = "any"
	typeText     = "text"
	typeScalar   = "scalar"
	typeOwner    = "owner"
	typeMetadata = "metadata"
)

func named(name string) schema.TypeRef { return schema.TypeRef{NamedType: &name} }

func scalar(s schema.Scalar) schema.Atom { return schema.Atom{Scalar: &s} }

func textMap() schema.TypeRef {
	return schema.TypeRef{Inlined: schema.Atom{Map: &schema.Map{ElementType: named(typeText), ElementRelationship: schema.Separable}}}
}

func structOf(relation schema.ElementRelationship, fields map[string]schema.TypeRef) schema.Atom {
	m := &schema.Map{ElementRelationship: relation}
	for name, ref := range fields {
		m.Fields = append(m.Fields, schema.StructField{Name: name, Type: ref})
	}
	return schema.Atom{Map: m}
}

// anyAtom describes a value of unknown type. Source: the deduced type of
// structured-merge-diff.
func anyAtom(element string, relation schema.ElementRelationship) schema.Atom {
	untyped := schema.Scalar("untyped")
	return schema.Atom{
		Scalar: &untyped,
		List:   &schema.List{ElementType: named(typeAtomic), ElementRelationship: schema.Atomic},
		Map:    &schema.Map{ElementType: named(element), ElementRelationship: relation},
	}
}

// commonTypes returns the types that all kinds share.
func commonTypes() []schema.TypeDef {
	set := schema.TypeRef{Inlined: schema.Atom{List: &schema.List{ElementType: named(typeText), ElementRelationship: schema.Associative}}}
	owners := schema.TypeRef{Inlined: schema.Atom{List: &schema.List{
		ElementType:         named(typeOwner),
		ElementRelationship: schema.Associative,
		Keys:                []string{"uid"},
	}}}
	list := schema.TypeRef{Inlined: schema.Atom{List: &schema.List{ElementType: named(typeAtomic), ElementRelationship: schema.Atomic}}}
	text, plain := named(typeText), named(typeScalar)
	return []schema.TypeDef{
		{Name: typeAtomic, Atom: anyAtom(typeAtomic, schema.Atomic)},
		{Name: typeAny, Atom: anyAtom(typeAny, schema.Separable)},
		{Name: typeText, Atom: scalar(schema.String)},
		{Name: typeScalar, Atom: scalar("untyped")},
		{Name: typeOwner, Atom: structOf(schema.Atomic, map[string]schema.TypeRef{
			"apiVersion": text, "kind": text, "name": text, "uid": text, "controller": plain, "blockOwnerDeletion": plain,
		})},
		{Name: typeMetadata, Atom: structOf("", map[string]schema.TypeRef{
			"annotations": textMap(), "labels": textMap(), "finalizers": set, "ownerReferences": owners, "managedFields": list,
			"name": text, "namespace": text, "generateName": text, "uid": text, "resourceVersion": text, "selfLink": text,
			"creationTimestamp": plain, "deletionTimestamp": plain, "deletionGracePeriodSeconds": plain, "generation": plain,
		})},
	}
}

// fieldTypes returns the types of one kind.
func fieldTypes(k api.Kind) typed.ParseableType {
	fields := map[string]schema.TypeRef{"apiVersion": named(typeText), "kind": named(typeText), "metadata": named(typeMetadata)}
	objects := objectMembers(k)
	for _, name := range topLevel(k) {
		fields[name] = named(typeAny)
	}
	for _, name := range objects {
		fields[name] = schema.TypeRef{Inlined: schema.Atom{Map: &schema.Map{ElementType: named(typeAny)}}}
	}
	parser := typed.Parser{Schema: schema.Schema{Types: append(commonTypes(), schema.TypeDef{Name: k.Kind, Atom: structOf("", fields)})}}
	return parser.Type(k.Kind)
}
