// HTML that changes in place: nodes that stay keep focus, selection and a click that has begun.
// A link to another page is a new node, so that a click never leads elsewhere than where it began.
export default {
  template: "<div></div>",
  props: { innerHTML: String },
  mounted() {
    this.$el.innerHTML = this.innerHTML;
  },
  watch: {
    innerHTML(content) {
      const next = document.createElement("div");
      next.innerHTML = content;
      updateChildren(this.$el, next);
    },
  },
};

function updateChildren(current, next) {
  const wanted = [...next.childNodes];
  while (current.childNodes.length > wanted.length) current.lastChild.remove();
  wanted.forEach((child, i) => {
    const node = current.childNodes[i];
    if (!node) current.append(child);
    else if (node.nodeName !== child.nodeName || node.href !== child.href) node.replaceWith(child);
    else if (child.nodeType !== Node.ELEMENT_NODE) {
      if (node.data !== child.data) node.data = child.data;
    } else {
      updateAttributes(node, child);
      updateChildren(node, child);
    }
  });
}

function updateAttributes(node, next) {
  for (const { name } of [...node.attributes]) if (!next.hasAttribute(name)) node.removeAttribute(name);
  for (const { name, value } of next.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}
