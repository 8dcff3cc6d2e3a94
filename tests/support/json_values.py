"""JSON values for hypothesis: all that can be stored."""

from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=10,
)
printable = st.characters(exclude_categories=["C", "Z"], include_characters=" ")
custom_ids = st.text(printable, min_size=1, max_size=20)
