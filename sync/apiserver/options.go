package apiserver

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// defaultManager is the field manager of writes inside the process.
const defaultManager = "limpet"

// writeParameters reads dryRun, fieldManager, fieldValidation and force. Its
// errors are 422 status errors that name the options kind.
func writeParameters(req *http.Request, kind string, patch types.PatchType) (writeOptions, error) {
	q := req.URL.Query()
	o := metav1.PatchOptions{DryRun: q["dryRun"], FieldManager: q.Get("fieldManager"), FieldValidation: q.Get("fieldValidation")}
	if values, ok := q["force"]; ok && len(values) > 0 {
		force := flagOf(q, "force")
		o.Force = &force
	}
	var errs field.ErrorList
	if kind == "PatchOptions" {
		errs = validation.ValidatePatchOptions(&o, patch)
	} else {
		errs = validation.ValidateCreateOptions(&metav1.CreateOptions{
			DryRun:          o.DryRun,
			FieldManager:    o.FieldManager,
			FieldValidation: o.FieldValidation,
		})
	}
	if len(errs) > 0 {
		return writeOptions{}, apierrors.NewInvalid(schema.GroupKind{Group: metaGroup, Kind: kind}, "", errs)
	}
	out := writeOptions{
		Manager:    o.FieldManager,
		DryRun:     len(o.DryRun) > 0,
		Validation: o.FieldValidation,
		Force:      o.Force != nil && *o.Force,
	}
	if out.Manager == "" {
		out.Manager = agentName(req.UserAgent())
	}
	if out.Validation == "" {
		out.Validation = metav1.FieldValidationWarn
	}
	return out, nil
}

// agentName returns the default field manager of a client: its User-Agent up to
// the first slash.
func agentName(agent string) string {
	name, _, _ := strings.Cut(agent, "/")
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, name)
	for len(name) > validation.FieldManagerMaxLength {
		// Cut whole runes.
		runes := []rune(name)
		name = string(runes[:len(runes)-1])
	}
	if name == "" {
		return "unknown"
	}
	return name
}

// deleteParameters reads DeleteOptions from the body or else the query.
func deleteParameters(req *http.Request, body []byte) (metav1.DeleteOptions, error) {
	var o metav1.DeleteOptions
	if len(body) > 0 {
		isYAML, err := contentOf(req)
		if err != nil {
			return o, err
		}
		if err := decodeOptions(body, isYAML, &o); err != nil {
			return o, badRequest("%s", err)
		}
		if o.Kind != "" && o.Kind != "DeleteOptions" {
			return o, badRequest("decoded object cannot be converted to DeleteOptions")
		}
	} else {
		q := req.URL.Query()
		o.DryRun = q["dryRun"]
		if p := metav1.DeletionPropagation(q.Get("propagationPolicy")); p != "" {
			o.PropagationPolicy = &p
		}
		if _, err := number(q, "gracePeriodSeconds"); err != nil {
			return o, err
		}
	}
	if errs := validation.ValidateDeleteOptions(&o); len(errs) > 0 {
		return o, apierrors.NewInvalid(schema.GroupKind{Group: metaGroup, Kind: "DeleteOptions"}, "", errs)
	}
	return o, nil
}

// number returns a whole number from the query; 0 if it is absent.
func number(q url.Values, name string) (int64, error) {
	raw := q.Get(name)
	if raw == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(raw, 10, 64)
	if err != nil {
		return 0, badRequest("strconv.ParseInt: parsing %q: invalid syntax", raw)
	}
	return n, nil
}

// decodeOptions reads an options object; unknown members are ignored.
func decodeOptions(body []byte, isYAML bool, into any) error {
	if isYAML {
		var err error
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return err
		}
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(body, into)
}
